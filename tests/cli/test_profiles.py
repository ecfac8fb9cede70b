"""`metronome profiles`: list, show, check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metronome_cli.cli.main import run
from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import profile_names
from metronome_cli.core.package_data import data_dir


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def output(capsys: Any, *arguments: str) -> str:
    assert run(["profiles", *arguments]) == 0
    text: str = capsys.readouterr().out
    return text


def test_list_names_every_profile(capsys: Any) -> None:
    lines = output(capsys, "list").splitlines()
    assert [line.split()[0] for line in lines[2:]] == profile_names()
    cards = json.loads(output(capsys, "list", "--json"))
    assert [card["name"] for card in cards] == profile_names()


def test_show_answers_what_a_planner_asks(capsys: Any) -> None:
    text = output(capsys, "show", "minicpm-o-4.5", "--device-memory", "96GiB", "--session-length", "10m")
    for said in (
        "36 layers", "144 KiB a position", "1.83 MiB/s", "4.5 MiB/s", "52 min 31 s", "for 10 min in 96 GiB",
        "Further stages", "Not verified", "Sources", "OpenBMB/MiniCPM-o-Demo",
    ):  # fmt: skip
        assert said in text


def test_show_as_json_is_the_card_and_the_profile(capsys: Any) -> None:
    shown = json.loads(output(capsys, "show", "moshi", "--device-memory", "96GiB", "--json"))
    assert shown["kv_bytes_per_token"] == 512 * 1024
    assert shown["fit"]["memory_bytes"] == 96 * 2**30
    assert Profile.from_numbers(shown["profile"]).name == "moshi"


def test_a_window_holds_more_sessions_than_no_bound(capsys: Any) -> None:
    def sessions(*more: str) -> int:
        shown = json.loads(
            output(capsys, "show", "qwen3-omni-30b", "--device-memory", "140GiB", "--json", *more)
        )
        return int(shown["fit"]["sessions"])

    assert sessions("--policy", "window(1024, 16)") > 5 * sessions()


def test_check_says_valid_or_every_mistake(capsys: Any, tmp_path: Path) -> None:
    good = data_dir("profiles") / "moshi.yaml"
    assert output(capsys, "check", str(good)) == f"{good}: valid, profile moshi\n"
    bad = tmp_path / "bad.yaml"
    bad.write_text(good.read_text().replace("layers: 32", "layres: 32"))
    assert run(["profiles", "check", str(good), str(bad)]) == 2
    captured = capsys.readouterr()
    assert captured.out == f"{good}: valid, profile moshi\n"
    assert captured.err == f"error: {bad}: unknown key 'shape.layres'\n\nhint: did you mean shape.layers?\n"


def test_a_file_with_control_codes_in_its_name_is_named_without_them(capsys: Any, tmp_path: Path) -> None:
    (odd := tmp_path / "a\x1b[31m\u202e.yaml").write_bytes((data_dir("profiles") / "smoke.yaml").read_bytes())
    assert output(capsys, "check", str(odd)).endswith("/a\\x1b[31m\\u202e.yaml: valid, profile smoke\n")


def test_check_as_json(capsys: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: 1")
    assert run(["profiles", "check", "--json", str(bad)]) == 2
    (result,) = json.loads(capsys.readouterr().out)
    assert result["valid"] is False
    assert "unknown key 'a'" in result["error"]


def test_a_bad_memory_is_refused(capsys: Any) -> None:
    assert run(["profiles", "show", "moshi", "--device-memory", "96"]) == 2
    assert "--device-memory: '96' is not a size" in capsys.readouterr().err
