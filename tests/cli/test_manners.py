"""Any width, no colour, ASCII, a pipe, a place that cannot be written: the answer comes out whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metronome_cli.cli.main import run
from metronome_cli.report.report_file import report_json
from metronome_cli.results.run_report import Report
from tests.report.builders import capacity_report

PLAIN = {"PYTHONIOENCODING": "ascii", "TERM": "dumb", "NO_COLOR": "1", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}
PREDICT = ["predict", "--profile", "smoke", "--policy", "unbounded", "--sessions", "8"]


@pytest.fixture
def report_file(tmp_path: Path) -> Path:
    made: Report = capacity_report()  # type: ignore[no-untyped-call]
    (file := tmp_path / "report.json").write_text(report_json(made))
    return file


def output(*arguments: str, columns: int) -> list[str]:
    """Lines on stdout, in a pipe and as plain as it gets; stderr must be as plain."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("METRONOME_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "metronome_cli", *arguments], check=False, timeout=120,
        env=environment | PLAIN | {"COLUMNS": str(columns)}, capture_output=True,
    )  # fmt: skip
    assert done.returncode in (0, 3, 4), done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    assert done.stderr.isascii()
    lines = done.stdout.decode("ascii").splitlines()
    assert lines
    return lines


@pytest.mark.parametrize("columns", [40, 300])
@pytest.mark.parametrize("command", [PREDICT, ["capacity", "--help"], ["probe", "quality", "--help"]])
def test_nothing_is_wider_than_it_may_be(command: list[str], columns: int) -> None:
    lines = output(*command, columns=columns)
    assert max(len(line.rstrip()) for line in lines) <= columns


@pytest.mark.parametrize("columns", [40, 300])
def test_a_report_keeps_to_the_width(report_file: Path, columns: int) -> None:
    assert max(map(len, output("report", str(report_file), columns=columns))) <= columns


def test_a_whole_run_on_the_plainest_console() -> None:
    lines = output("capacity", "--profile", "smoke", "--sessions", "1", "--session-length", "5s", columns=40)
    assert max(len(line.rstrip()) for line in lines) <= 40
    text = " ".join(line.strip() for line in lines)
    assert (
        text.count("more good ones would settle it") <= 1 + 3 + 1
    )  # the sentence, the objectives, the point


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("flag", ["--html", "--junit"])
def test_a_full_disk_does_not_cost_the_answer(
    flag: str, report_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(report_file), flag, "/dev/full"]) == 1
    captured = capsys.readouterr()
    assert captured.out.strip()
    assert captured.err.startswith("error: cannot write /dev/full: No space left")
    assert "hint: make room" in captured.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("ui", ["none", "plain"])
def test_a_load_that_could_not_be_kept_is_told_after_the_answer(
    ui: str, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--sessions", "1", "--session-length", "5s"]
    assert run(["capacity", "--profile", "smoke", *short, "--record", "/dev/full", "--ui", ui]) == 1
    captured = capsys.readouterr()
    assert "1 session" in captured.out
    assert captured.err.rstrip().endswith(
        "error: cannot write /dev/full: No space left on device\n\nhint: make room there, or give another place"
    )


@pytest.mark.parametrize(("argv", "flag"), [
    ([*PREDICT, "--html", "/dev/null/inside"], "--html"),
    ([*PREDICT, "--output", "/dev/null/inside"], "--output"),
    (["report", "REPORT", "--html", "/dev/null/inside.html"], "--html"),
    (["report", "REPORT", "--junit", "/dev/null/inside.xml"], "--junit"),
    (["capacity", "--profile", "smoke", "--dry-run", "--junit", "/dev/null/inside.xml"], "--junit"),
    (["probe", "latency", "--profile", "smoke", "--dry-run", "--output", "/dev/null/inside"], "--output"),
])  # fmt: skip
def test_a_path_that_cannot_be_written_is_told_before_the_work(
    argv: list[str], flag: str, report_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(report_file) if word == "REPORT" else word for word in argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {flag}: cannot write /dev/null/inside")
