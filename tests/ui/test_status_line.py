"""The line for short work: what it says, where it is shown, and that it goes."""

from __future__ import annotations

import io
import time

import pytest

from metronome_cli.ui import status_line as module
from metronome_cli.ui.status_line import line, status_line


class Terminal(io.StringIO):
    """A terminal that notes what it was told."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(module, "QUIET_S", 0.001)


def worked(stream: io.StringIO) -> str:
    """What was written while work went on until a line was there, or for a moment."""
    with status_line("looking", 4.0, stream):
        until_s = time.monotonic() + (5.0 if stream.isatty() else 0.05)
        while not stream.getvalue() and time.monotonic() < until_s:
            time.sleep(0.005)
    return stream.getvalue()


@pytest.mark.parametrize(("elapsed_s", "expected_s", "said"), [
    (2.0, 4.0, "looking  2 s, about 2 s left"),
    (5.0, 4.0, "looking  5 s"),
    (1.0, None, "looking  1 s"),
])  # fmt: skip
def test_it_says_what_and_how_long_and_promises_nothing_it_cannot_keep(
    elapsed_s: float, expected_s: float | None, said: str
) -> None:
    assert line("looking", elapsed_s, expected_s) == said


def test_on_a_terminal_it_is_shown_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    text = worked(Terminal())
    assert text.startswith("\r\x1b[Klooking  ")
    assert text.endswith("\r\x1b[K")
    assert all(len(part.removeprefix("\x1b[K")) <= 23 for part in text.split("\r"))


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_take_it_back_gets_nothing(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    assert worked(io.StringIO()) == ""
    with status_line("looking", stream=(stream := Terminal())):
        time.sleep(0.02)
    assert stream.getvalue() == ""


def test_a_pipe_gets_nothing() -> None:
    assert worked(io.StringIO()) == ""


def test_a_terminal_that_is_gone_does_not_end_the_work() -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError("gone")

    with status_line("looking", stream=Gone()):
        time.sleep(0.02)


def test_an_error_passes_through_and_leaves_the_line_clean() -> None:
    stream = Terminal()

    def fail() -> None:
        while not stream.getvalue():
            time.sleep(0.005)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), status_line("looking", stream=stream):
        fail()
    assert stream.getvalue().endswith("\r\x1b[K")
