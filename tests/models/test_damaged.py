"""Damaged checkpoints: whatever is broken in one, it is read or refused in one line that names the file."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from metronome_cli.commands.predict.checkpoint_size import weights_in
from metronome_cli.core.errors import UsageError
from metronome_cli.models.plain_decoder import profile_for
from metronome_cli.models.weights.model_files import find_model, read_decoder
from tests.models.test_any_decoder import FAMILIES, checkpoint

VALUES: list[Any] = [
    -1, 0, 10**30, -(10**30), 1.5, "evil", "", [], ["x"], {}, {"a": 1}, None, True, "2", [None], 10**12, "float99",
]  # fmt: skip
KEYS = (
    "dtype", "torch_dtype", "layer_types", "text_config", "rope_scaling", "rope_parameters", "quantization_config",
    "model_type", "architectures", "sliding_window", "auto_map", "hidden_act", "activation_function", "use_cache",
)  # fmt: skip


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def intact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("intact") / str(request.param)
    checkpoint(folder, request.param, FAMILIES[request.param])
    return folder


def read_all(folder: Path) -> UsageError | None:
    """Everything that a command reads of a checkpoint. Anything but a UsageError is a failure of the test."""
    try:
        profile_for(str(folder))
        read_decoder(find_model(str(folder)), torch.device("cpu"))
        weights_in(folder)
    except UsageError as error:
        return error
    return None


def refused(folder: Path) -> None:
    error = read_all(folder)
    if error is not None:
        assert "\n" not in error.message
        assert len(error.message) < 700


def test_an_intact_checkpoint_is_read(intact: Path) -> None:
    assert read_all(intact) is None


@pytest.mark.parametrize("seed", range(24))
def test_any_value_in_a_configuration(intact: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    folder = shutil.copytree(intact, tmp_path / "m")
    file = folder / "config.json"
    config = json.loads(file.read_text())
    key = draw.choice([*config, *KEYS])
    file.write_text(json.dumps({**config, key: draw.choice(VALUES)}))
    refused(folder)


@pytest.mark.parametrize(("key", "value"), [("dtype", "evil"), ("layer_types", ["x"]), ("hidden_size", -32)])
def test_the_key_and_the_file_are_named(intact: Path, tmp_path: Path, key: str, value: object) -> None:
    folder = shutil.copytree(intact, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    known = {"hidden_size": "n_embd"}.get(key, key) if config["model_type"] == "gpt2" else key
    (folder / "config.json").write_text(json.dumps({**config, known: value}))
    error = read_all(folder)
    assert error is not None
    assert "config.json" in error.message
    assert any(word in error.message for word in (key, known, str(value)))


@pytest.mark.parametrize("seed", range(12))
def test_any_damage_to_the_weights(intact: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    folder = shutil.copytree(intact, tmp_path / "m")
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    length = int.from_bytes(data[:8], "little")
    kind = seed % 6
    if kind == 0:
        data = data[: draw.randrange(len(data))]
    elif kind == 1:
        data[:8] = draw.choice([2**40, 2**63, length - 3, length + 7, 0]).to_bytes(8, "little")
    elif kind == 2:
        at = 8 + draw.randrange(length)
        data[at] = draw.randrange(256)
    else:
        header = json.loads(bytes(data[8 : 8 + length]))
        tensor = header[draw.choice([name for name in header if name != "__metadata__"])]
        tensor[draw.choice(["dtype", "shape", "data_offsets"])] = draw.choice(
            ["X9", [-1, 3], [10**20], [0, 10**15], 7]
        )
        text = json.dumps(header).encode()
        data = bytearray(len(text).to_bytes(8, "little") + text + bytes(data[8 + length :]))
    file.write_bytes(bytes(data))
    refused(folder)


@pytest.mark.parametrize(
    "index",
    ["[]", "{", '{"weight_map": 5}', '{"weight_map": {"a": 3}}', '{"weight_map": {"a": "gone.safetensors"}}'],
)
def test_an_index_that_points_nowhere(intact: Path, tmp_path: Path, index: str) -> None:
    folder = shutil.copytree(intact, tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    assert read_all(folder) is not None


@pytest.mark.parametrize("length", [0, 3, 4, 24, 40])
def test_a_gguf_file_cut_short(tmp_path: Path, length: int) -> None:
    pytest.importorskip("gguf")
    file = tmp_path / "model.gguf"
    head = b"GGUF\x03\x00\x00\x00" + (2**40).to_bytes(8, "little") + (5).to_bytes(8, "little")
    file.write_bytes((head + b"\xff" * 64)[:length])
    assert read_all(file) is not None


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_pipes_are_refused_at_once(intact: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(intact, tmp_path / "m")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    error = read_all(folder)
    assert error is not None
    assert name in error.message
