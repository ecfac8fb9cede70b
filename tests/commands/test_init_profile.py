"""A config.json becomes a profile that is valid, planned with, and never written over another file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.cli.main import run
from metronome_cli.commands.init_profile import draft_profile, write_draft
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.errors import UsageError

CONFIG: dict[str, Any] = {
    "model_type": "qwen3", "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "hidden_size": 2560, "intermediate_size": 9728, "vocab_size": 151936,
    "max_position_embeddings": 40960, "rope_theta": 1_000_000, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "My Model (4B)"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    return directory


def with_config(directory: Path, **changes: Any) -> Path:
    (directory / "config.json").write_text(json.dumps(CONFIG | changes))
    return directory


def test_check_accepts_it_and_predict_plans_with_it(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    assert run(["init", str(checkpoint), "--output", str(file)]) == 0
    open_lines = file.read_text().count("# CHECK: ")
    assert open_lines == 8
    said = f"mine.yaml: profile my-model-4b; {open_lines} lines marked CHECK are not settled\n"
    assert capsys.readouterr().out.endswith(said)
    assert run(["profiles", "check", str(file)]) == 0
    assert run(["predict", "--profile", str(file), "--kv-pool", "8GiB", "--sessions", "16", "--json"]) in (
        0,
        3,
    )
    profile = load_profile(file)
    assert profile.shape.kv_bytes_per_token == 2 * 36 * 8 * 128 * 2
    assert (profile.adapter, profile.shape.rope_theta, profile.verified) == ("decoder", 1e6, False)


def test_a_file_that_is_there_stays_unless_forced(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("precious")
    assert run(["init", str(checkpoint), "--output", str(file)]) == 2
    assert file.read_text() == "precious"
    assert run(["init", str(checkpoint), "--output", str(file), "--force"]) == 0
    assert load_profile(file).name == "my-model-4b"


def test_without_output_it_goes_into_the_directory_where_one_is(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", str(checkpoint / "config.json"), "--name", "other"]) == 0
    assert load_profile(tmp_path / "other.yaml").name == "other"


def test_a_dash_prints_what_would_be_written(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", str(checkpoint), "--output", "-"]) == 0
    assert capsys.readouterr().out == draft_profile(checkpoint).text


def test_a_sliding_window_becomes_the_policy(checkpoint: Path) -> None:
    draft = draft_profile(
        with_config(checkpoint, sliding_window=4096, use_sliding_window=True, max_window_layers=0)
    )
    assert draft.profile.policy_spec == CachePolicySpec.parse("window(4096)")


def test_what_no_adapter_runs_is_for_planning(checkpoint: Path) -> None:
    assert draft_profile(with_config(checkpoint, model_type="novel")).profile.adapter is None
    assert (
        draft_profile(with_config(checkpoint, kv_lora_rank=512, qk_rope_head_dim=64)).profile.adapter is None
    )


@settings(max_examples=60, deadline=None)
@given(name=st.text(max_size=80), kind=st.text(max_size=80))
def test_whatever_names_a_config_carries_the_profile_is_valid(
    name: str, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("model")
    draft = draft_profile(with_config(directory, _name_or_path=name, model_type=kind))
    assert draft.profile.shape.layers == 36


@pytest.mark.parametrize("missing", ["num_hidden_layers", "num_attention_heads"])
def test_a_config_that_does_not_say_is_refused(checkpoint: Path, missing: str) -> None:
    (checkpoint / "config.json").write_text(json.dumps({k: v for k, v in CONFIG.items() if k != missing}))
    with pytest.raises(UsageError):
        draft_profile(checkpoint)


def test_a_bad_name_and_a_bad_place_are_usage_errors(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name"):
        draft_profile(checkpoint, "No Such Name")
    with pytest.raises(UsageError, match="cannot write"):
        write_draft(draft_profile(checkpoint), tmp_path / "absent" / "mine.yaml")
