"""The live view in a real terminal (tmux) at four sizes: it fills the screen, answers keys and leaves nothing."""

import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


class Terminal:
    """A program in a terminal of its own; killed at the end."""

    def __init__(self, columns, rows, command):
        self.name = f"metronome-{uuid.uuid4().hex[:8]}"
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "-s", "v", command
        )

    def _tmux(self, *words):
        done = subprocess.run(
            ["tmux", "-L", self.name, *words], capture_output=True, text=True, check=False, timeout=20
        )
        return done.stdout

    def screen(self):
        return self._tmux("capture-pane", "-p", "-t", "v").rstrip("\n").split("\n")

    def until(self, shown):
        """The first screen for which `shown(text)` holds; the last one seen after 30 s."""
        ends = time.monotonic() + 30
        while True:
            lines = self.screen()
            if shown("\n".join(lines)) or time.monotonic() > ends:
                return lines
            time.sleep(0.1)

    def press(self, key):
        self._tmux("send-keys", "-t", "v", key)

    def end(self):
        self._tmux("kill-server")


@pytest.fixture
def terminal():
    opened = []

    def open_one(columns, rows, seconds):
        clean = f"env -u LINES -u COLUMNS LANG=C.UTF-8 PYTHONPATH={ROOT}"
        program = f"{clean} {sys.executable} -m tests.ui.demo {seconds} live"
        opened.append(Terminal(columns, rows, f"cd {ROOT} && {program}; echo END; sleep 60"))
        return opened[-1]

    yield open_one
    for each in opened:
        each.end()


@pytest.mark.parametrize(("columns", "rows"), [(60, 20), (80, 24), (120, 40), (200, 60)])
def test_the_screen_is_filled_and_left_clean(terminal, columns, rows):
    view = terminal(columns, rows, 4)
    lines = view.until(lambda text: "full in" in text and "deadline" in text)
    text = "\n".join(lines)
    assert len(lines) == rows
    assert all(len(line) <= columns for line in lines)
    for words in (
        "KV pool",
        "full in ",
        "p99 ",
        "deadline 80 ms",
        "sessions: ",
        "search, 3 numbers",
        "q stop",
    ):
        assert words in text
    if rows >= 40:
        assert "latency of" in text
        assert "left out noise.mp3" in text
    left = [line for line in view.until(lambda text: "END" in text) if line.strip()]
    assert (
        "".join(left) == "Fail: 24 sessions for 10 min: the KV pool was full at 540 s. Limited by: memory.END"
    )


def test_keys_pause_help_and_stop(terminal):
    view = terminal(120, 40, 30)
    view.until(lambda text: "full in" in text)
    view.press("?")
    assert any("hold the picture" in line for line in view.until(lambda text: "hold the picture" in text))
    view.press("p")
    paused = view.until(lambda text: "paused" in text)
    time.sleep(1)
    assert view.screen() == paused
    view.press("p")
    view.until(lambda text: "paused" not in text)
    view.press("q")
    assert any("KeyboardInterrupt" in line for line in view.until(lambda text: "END" in text))
