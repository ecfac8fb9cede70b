"""The countdown of a watched server: one line that is rewritten on a terminal, one line a scrape elsewhere."""

from __future__ import annotations

import shutil
from typing import Any, TextIO

from metronome_cli.results.events import Snapshot
from metronome_cli.ui.glyphs import printable


class Countdown:
    """An observer for `predict --metrics-url`. A stream that fails is not written to again."""

    def __init__(self, stream: TextIO, *, redraw: bool) -> None:
        self._stream: TextIO | None = stream
        self._redraw = redraw
        self._open_line = False

    def phase(self, name: str, detail: str) -> None:
        """What is watched."""
        self.notice(f"{name} {detail}")

    def snapshot(self, snapshot: Snapshot) -> None:
        """A watched server has none."""

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """The line of a scrape."""
        if kind != "scrape":
            return
        line = printable(f"[{data['t_s']:7.1f} s] {data['line']}")
        if self._redraw:
            width = max(20, shutil.get_terminal_size().columns - 1)
            self._write(f"\r{line[:width]:<{width}}")
            self._open_line = True
        else:
            self._write(line + "\n")

    def notice(self, message: str) -> None:
        """A line that stays."""
        self._end_line()
        self._write(printable(message) + "\n")

    def close(self) -> None:
        """Leave the terminal on a fresh line."""
        self._end_line()
        self._stream = None

    def _end_line(self) -> None:
        if self._open_line:
            self._open_line = False
            self._write("\n")

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None
