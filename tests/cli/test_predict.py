"""`metronome predict` as it is called: flags, exit codes, what goes to stdout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metronome_cli.cli.main import run
from tests.forecast.test_memory import QWEN3

BASE = ["predict", "--profile", "default"]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("METRONOME_SESSIONS", raising=False)


def test_json_is_the_report_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BASE, "--policy", "unbounded", "--sessions", "16", "--session-length", "2m", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    forecast = report["forecast"]
    assert (
        forecast["fill_time_s"]["low"] < forecast["fill_time_s"]["estimate"] < forecast["fill_time_s"]["high"]
    )
    assert forecast["collapse_probability"] == 1.0
    assert forecast["limited_by"] == "pool"
    assert forecast["max_sessions"] > 0
    assert forecast["fitting_window_tokens"] > 0
    assert report["command"] == "predict"


def test_the_published_case_from_its_profile(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "predict",
        "--profile",
        "qwen3-omni-30b",
        "--sessions",
        "128",
        "--session-length",
        "5m",
        "--json",
    ]
    assert run(arguments) == 0
    estimate = json.loads(capsys.readouterr().out)["forecast"]["fill_time_s"]["estimate"]
    assert 130 < estimate < 165


def test_text_names_the_answer_and_its_grounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BASE, "--policy", "unbounded", "--sessions", "16"]) == 0
    text = capsys.readouterr().out
    for part in (
        "16 sessions fill the pool at",
        "90 % interval",
        "Assumptions",
        "blocks of 16 positions",
    ):
        assert part in text


@pytest.mark.parametrize(("within", "code"), [("10s", 0), ("5m", 3)])
def test_fail_within_is_the_exit_code(within: str, code: int) -> None:
    assert run([*BASE, "--policy", "unbounded", "--sessions", "16", "--fail-within", within]) == code


def test_a_checkpoint_with_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    load = ["--tokens-per-second", "27", "--sessions", "64", "--session-length", "5m"]
    assert run(["predict", "--model", str(tmp_path), "--device-memory", "80GiB", *load]) == 0
    text = capsys.readouterr().out
    for part in ("From memory to the pool", "weights", "activations", "144 KiB per position"):
        assert part in text


def test_a_fleet_and_cards(capsys: pytest.CaptureFixture[str]) -> None:
    load = ["--arrival-rate", "2.5/s", "--mean-session-length", "4m", "--max-blocking", "1%"]
    assert run(["predict", "fleet", *load, "--sessions-per-gpu", "100"]) == 0
    assert "7 GPUs of 100 sessions" in capsys.readouterr().out
    assert run(["predict", "--profile", "moshi", "--gpu", "h100,rtx-4090"]) == 0
    assert "Estimates, not measured" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--sessions is missing"),
        (
            ["--sessions", "4", "--kv-pool", "1GiB", "--device-memory", "8GiB"],
            "--kv-pool and --device-memory contradict",
        ),
        (["--sessions", "4", "--turn-length", "1s"], "--turn-length is for --model"),
        (["--sessions", "4", "--fail-probability", "1%"], "--fail-probability needs --fail-within"),
        (["--metrics-url", "x"], "--metrics-url became a command"),
        (["--sessions", "4", "--ramp-up", "3"], "--ramp-up"),
        (
            ["fleet", "--arrival-rate", "2.5", "--mean-session-length", "4m", "--sessions-per-gpu", "1"],
            "--arrival-rate",
        ),
        (["--sessions", "4", "--confidence", "120%"], "--confidence"),
        (["--gpu", "h10000"], "is not a known GPU"),
        (["trace", "/does/not/exist.csv"], "exist.csv"),
        (["--model", "/does/not/exist", "--tokens-per-second", "27", "--sessions", "4"], "no such file"),
        (
            ["--model", "/does/not/exist", "--sessions", "4", "--tokens-per-second", "x"],
            "--tokens-per-second",
        ),
    ],
)
def test_mistakes_are_usage_errors(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in " ".join(captured.err.split())
    assert captured.out == ""


def test_a_config_without_a_load_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    assert run(["predict", "--model", str(tmp_path), "--device-memory", "80GiB", "--sessions", "4"]) == 2
    assert "--tokens-per-second" in capsys.readouterr().err


def test_a_likely_collapse_fails_although_the_median_is_later(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*BASE, "--policy", "unbounded", "--sessions", "16", "--session-length", "2m", "--json"]
    assert run(asked) == 0
    time = json.loads(capsys.readouterr().out)["forecast"]["fill_time_s"]
    between = f"{(time['low'] + time['estimate']) / 2:.3f}s"  # less likely than not, and far from excluded
    for probability, code in (("5%", 3), ("49%", 0)):
        assert run([*asked, "--fail-within", between, "--fail-probability", probability]) == code
    assert run([*asked, "--fail-within", f"{time['low'] * 0.9:.3f}s"]) == 0


@pytest.mark.parametrize(
    ("command", "shown"), [("predict profile", "[default: 95%]"), ("capacity", "[default: default]")]
)
def test_help_shows_a_default_as_it_is_written(
    command: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "default: (" not in said
    assert shown in said
