"""Nothing in a file from elsewhere is ever executed: profile, settings, report, events, checkpoint."""

import json
import os
import pickle
import zipfile

import pytest
import torch

from metronome_cli.config.profile_files import load_profile
from metronome_cli.config.yaml_file import parse_yaml
from metronome_cli.core.errors import UsageError
from metronome_cli.core.strict_json import dumps
from metronome_cli.models.weights.checkpoint import Checkpoint
from metronome_cli.report.event_log import EVENTS_FILE, head
from metronome_cli.report.rebuild import load_run
from tests.faults.runs import call


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self._path = str(path)

    def __reduce__(self):
        return os.mkdir, (self._path,)


@pytest.fixture
def sign(tmp_path):
    """What is there once something ran."""
    path = tmp_path / "executed"
    yield path
    assert not path.exists()


def test_the_bomb_works(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "model.pth", "consolidated.00.pth", "model.ckpt", "model.pkl",
             "model.safetensors", "model.gguf", "model.npz"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["pickle", "torch", "zip"])
def test_a_checkpoint_is_never_unpickled(tmp_path, sign, name, how):
    folder = tmp_path / "model"
    folder.mkdir()
    write_bomb(folder / name, how, Bomb(sign))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    for path in (folder, folder / name):
        with pytest.raises(UsageError):
            Checkpoint.open(path).read("weight", torch.device("cpu"))


def write_bomb(path, how, bomb):
    if how == "pickle":
        path.write_bytes(pickle.dumps(bomb))
    elif how == "torch":
        torch.save({"weight": bomb}, path)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("weight.npy", pickle.dumps(bomb))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_the_program_refuses_such_a_model(tmp_path, sign, name):
    folder = tmp_path / "model"
    folder.mkdir()
    write_bomb(folder / name, "torch", Bomb(sign))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
              "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64,
              "vocab_size": 64, "max_position_embeddings": 128}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    code, _, err = call("capacity", "--model", folder, "--clock", "virtual", "--sessions", 1)
    assert code == 2, err


@pytest.mark.slow
def test_code_beside_a_checkpoint_is_not_imported(tmp_path, sign):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "modeling_evil.py").write_text(f"import os\nos.mkdir({str(sign)!r})\n")
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "modeling_evil.Config",
              "AutoModelForCausalLM": "modeling_evil.Model"}, "architectures": ["EvilForCausalLM"]}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["modeling_evil.T", None]}})
    )
    for command in (
        ("capacity", "--model", folder, "--clock", "virtual", "--sessions", 1),
        ("probe", "quality", "--model", folder),
        ("init", folder / "config.json"),
        ("predict", "--config", folder / "config.json"),
    ):
        assert call(*command)[0] == 2


YAML_BOMBS = [
    "name: !!python/object/apply:os.mkdir [{sign}]",
    "name: !!python/object/new:os.mkdir [{sign}]",
    "!!python/object/apply:os.mkdir [{sign}]",
    "a: &x !!python/name:os.system\nb: *x",
    "? !!python/object/apply:os.mkdir [{sign}]\n: 1",
]


@pytest.mark.parametrize("text", YAML_BOMBS)
def test_yaml_makes_no_objects(tmp_path, sign, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text.replace("{sign}", str(sign)))
    with pytest.raises(UsageError):
        load_profile(file)
    with pytest.raises(UsageError):
        parse_yaml(file.read_text(), "here")


CALLS = ['__import__("os").mkdir("{sign}")', "{{{{7*7}}}}", "${{IFS}}", "`touch {sign}`", "$(touch {sign})"]


@pytest.mark.parametrize("text", CALLS)
def test_a_report_and_its_events_are_data(tmp_path, sign, text):
    text = text.format(sign=sign)
    (tmp_path / "report.json").write_text(json.dumps({"schema": text, "answer": text}))
    with pytest.raises(UsageError):
        load_run(tmp_path)
    (tmp_path / "report.json").write_bytes(pickle.dumps(Bomb(sign)))
    with pytest.raises(UsageError):
        load_run(tmp_path)
    file = tmp_path / EVENTS_FILE
    file.write_text("\n".join([dumps(head()), dumps({"t": 0.0, "kind": text, "data": {}}), ""]))
    with pytest.raises(UsageError):
        load_run(file)
