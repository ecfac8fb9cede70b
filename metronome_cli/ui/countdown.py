"""The countdown of a watched server: one line per scrape."""

from __future__ import annotations

from typing import Any, TextIO

from metronome_cli.results.events import Snapshot
from metronome_cli.ui.glyphs import printable


class Countdown:
    """An observer for `predict watch`. A stream that fails is not written to again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    def phase(self, name: str, detail: str) -> None:
        """What is watched."""
        self.notice(f"{name} {detail}")

    def snapshot(self, snapshot: Snapshot) -> None:
        """A watched server has none."""

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """The line of a scrape."""
        if kind == "scrape":
            self._write(printable(f"[{data['t_s']:7.1f} s] {data['line']}") + "\n")

    def notice(self, message: str) -> None:
        """A line of its own."""
        self._write(printable(message) + "\n")

    def close(self) -> None:
        """Write nothing more."""
        self._stream = None

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None
