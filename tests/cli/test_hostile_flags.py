"""Flags that cannot mean anything: refused by name before anything runs, never an internal error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metronome_cli.cli.main import run
from metronome_cli.core.errors import ExitCode

CAPACITY = ["capacity", "--profile", "smoke", "--dry-run"]
FLEET = ["predict", "fleet", "--sessions-per-gpu", "1"]
PREDICT = ["predict", "--profile", "smoke", "--sessions", "4"]


@pytest.mark.parametrize(("argv", "says"), [
    ([*CAPACITY, "--output", ""], "--output"),
    ([*CAPACITY, "--config", ""], "--config"),
    ([*CAPACITY, "--audio", ""], "--audio"),
    ([*CAPACITY, "--metrics-url", "http://127.0.0.1:1/metrics"], "--metrics-url is for a server"),
    ([*CAPACITY, "--connect-timeout", "1s"], "--connect-timeout is for a server"),
    ([*CAPACITY, "--workers", "2"], "--workers is for a server"),
    ([*CAPACITY, "--max-sessions", "9" * 30], "out of range"),
    ([*CAPACITY, "--session-length", "1ms"], "ends before its first frame"),
    ([*CAPACITY, "--url", "ws://127.0.0.1:1", "--clock", "virtual"], "needs the real clock"),
    ([*CAPACITY, "--admission-control", "memory", "--compare-policies"], "includes admission control"),
    ([*CAPACITY, "--admission-control", "memory", "--soak"], "--soak"),
    ([*CAPACITY, "--compare-policies", "--search-method", "ramp"], "--search-method is for a search"),
    ([*CAPACITY, "--sessions", "2", "--search-time", "1m"], "--search-time is for a search"),
    ([*FLEET, "--peak-sessions", "1000000000"], "more than a million GPUs"),
    ([*FLEET, "--arrival-rate", "1000000/s", "--mean-session-length", "1000h"], "more than a million GPUs"),
    ([*FLEET, "--arrival-rate", "2/s", "--mean-session-length", "4m", "--max-blocking", "0"], "--max-blocking 0"),
    (["predict", "--profile", "smoke", "--sessions", "1000000000"], "more than can be computed"),
    ([*PREDICT, "--confidence", "0"], "--confidence"),
    ([*PREDICT, "--confidence", "100%"], "--confidence"),
    ([*PREDICT, "--device-memory", "96GiB", "--memory-utilization", "0"], "--memory-utilization"),
    ([*PREDICT, "--initial-occupancy", "100%"], "--initial-occupancy"),
    ([*PREDICT, "--gpu", ",,"], "--gpu"),
    (["serve", "--duration", "x"], "--duration: 'x' is not a duration"),
    (["serve", "--duration", "0s"], "--duration: '0s' is no time at all"),
    (["serve", "--duration", ""], "--duration: '' is not a duration"),
    (["serve", "--on-full", "x"], "--on-full: 'x' is not known"),
    (["probe", "latency", "--dry-run", "--age", "x"], "--age: 'x' is not a duration"),
    (["probe", "latency", "--dry-run", "--policy", "x"], "--policy: 'x' is not a policy"),
    (["predict", "watch", "--once", "http://[::1/metrics"], "is not an address"),
    (["predict", "watch", "--once", "http://127.0.0.1:99999"], "is not an address"),
    (["predict", "watch", "--once", "http://a b/metrics"], "is not an address"),
    (["predict", "watch", "--once", "http://"], "is not an address"),
])  # fmt: skip
def test_refused_by_name(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert says in err
    assert "hint: " in err
    assert out == ""


@pytest.mark.parametrize("dry", [["--dry-run"], ["--ui", "none"]])
@pytest.mark.parametrize("command", [["capacity", "--sessions", "1"], ["probe", "latency"]])
@pytest.mark.parametrize(("audio", "says"), [
    ("gone.wav", "no such file or directory: "), ("notes.wav", "no usable audio: "), ("empty", "no audio files in "),
])  # fmt: skip
def test_a_dry_run_refuses_audio_as_the_run_does(
    command: list[str],
    dry: list[str],
    audio: str,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "notes.wav").write_text("no sound at all")
    (tmp_path / "empty").mkdir()
    assert run([*command, "--profile", "smoke", "--audio", str(tmp_path / audio), *dry]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {says}")
    assert "hint: " in err


@pytest.mark.parametrize("argv", [
    ["report", "FILE"],
    ["compare", "FILE", "FILE"],
    ["predict", "trace", "FILE"],
    ["predict", "fleet", "--peak-sessions", "9", "--capacity-report", "FILE"],
    ["predict", "--model", "FILE", "--sessions", "2", "--tokens-per-second", "27"],
    ["profiles", "check", "FILE"],
    ["init", "FILE"],
    [*CAPACITY, "--config", "FILE"],
])  # fmt: skip
def test_a_pipe_that_nothing_writes_to_is_refused_at_once(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert run([str(pipe) if word == "FILE" else word for word in argv]) == ExitCode.USAGE
    assert "pipe.json" in capsys.readouterr().err


def test_a_variable_for_sessions_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METRONOME_METRICS_URL", "http://127.0.0.1:1/metrics")
    assert run(CAPACITY) == ExitCode.OK


@pytest.mark.parametrize(("flag", "place"), [
    ("--output", "pipe"), ("--output", "file"), ("--output", "file/inside"), ("--html", "directory"),
    ("--html", "file/inside"), ("--junit", "directory"), ("--junit", "file/inside"),
])  # fmt: skip
def test_a_place_that_cannot_be_written_is_told_before_the_run(
    flag: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("kept")
    (tmp_path / "directory").mkdir()
    assert run(["capacity", "--profile", "smoke", flag, str(tmp_path / place)]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert (out, (tmp_path / "file").read_text()) == ("", "kept")
    assert f"{flag}: cannot write {tmp_path / place}" in err
    assert "load" not in err
