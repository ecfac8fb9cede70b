"""`predict --model` says what a checkpoint's configuration says of one session, with or without a load."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from metronome_cli.cli.main import run

MIXED: dict[str, Any] = {
    "model_type": "mixed", "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
    "hidden_size": 512, "layer_types": ["full_attention", "sliding_attention", "linear_attention"],
    "sliding_window": 128, "max_position_embeddings": 4096, "rope_parameters": {"rope_theta": 5e5},
    "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4, "dtype": "bfloat16",
}  # fmt: skip
FULL, WINDOW = 2 * 2 * 64 * 2, 2 * 2 * 64 * 2 * 128
STATE = 4 * 32 * 32 * 4 + 3 * 4 * 32 * 4 * 2


def forecast(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert run(["predict", *flags, "--json"]) in (0, 3)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["forecast"]
    return found


def checkpoint(folder: Path, **changes: Any) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MIXED | changes))
    return str(folder)


def test_without_a_load_the_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = forecast(capsys, "--model", checkpoint(tmp_path / "m"))
    assert told["cache"]["growing_bytes_per_token"] == FULL
    assert told["cache"]["constant_bytes_per_session"] == WINDOW + STATE
    assert [group["law"] for group in told["cache"]["groups"]] == ["growing", "windowed", "state"]
    assert (told["context_length"], told["rope_theta"]) == (4096, 5e5)
    assert told["max_sessions"] is None


def test_what_no_file_says_is_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = forecast(
        capsys, "--model", checkpoint(tmp_path / "m", max_position_embeddings=None, rope_parameters=None)
    )
    assert (told["context_length"], told["rope_theta"]) == (None, None)


def test_a_forecast_pays_windows_and_states_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = ("--tokens-per-second", "10", "--sessions", "8", "--session-length", "1m")
    told = forecast(capsys, "--model", checkpoint(tmp_path / "m"), "--kv-pool", "64MiB", *load)
    assert told["cache"]["growing_bytes_per_token"] == FULL
    grown = 10 * 60 * FULL
    assert told["max_sessions"] == pytest.approx(64 * 2**20 / (WINDOW + STATE + grown), rel=0.03)


def test_unknown_weights_are_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = ("--tokens-per-second", "10", "--sessions", "8", "--device-memory", "24GiB")
    told = forecast(capsys, "--model", checkpoint(tmp_path / "m"), *load)
    assert told["max_sessions"] is None
    assert "weights" in told["reason"]
    assert told["cache"]["growing_bytes_per_token"] == FULL


def test_a_model_that_only_keeps_a_state_never_fills_a_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = {"layer_types": ["linear_attention"] * 3, "max_position_embeddings": None}
    load = ("--tokens-per-second", "10", "--sessions", "8", "--kv-pool", "1MiB")
    told = forecast(capsys, "--model", checkpoint(tmp_path / "m", **only), *load)
    assert told["fill_time_s"]["estimate"] is None
    assert told["max_sessions"] == 2**20 // (3 * STATE) - (2**20 % (3 * STATE) == 0)


def test_files_that_are_none_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "deep.json").write_text('{"a":' * 10_000 + "1" + "}" * 10_000)
    (tmp_path / "wrong.json").write_text(json.dumps(MIXED | {"num_hidden_layers": -3}))
    for name in ("pipe.json", "deep.json", "wrong.json", "gone.json", "."):
        assert run(["predict", "--model", str(tmp_path / name)]) == 2
        first = capsys.readouterr().err.splitlines()
        assert first[0].startswith("error: ")
        assert not any("Traceback" in line for line in first)
