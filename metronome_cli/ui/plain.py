"""Plain lines for logs: no control codes, one line a window, at most one a second of wall time.

A window that was passed over is printed when its phase ends, so every phase shows at least its last one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TextIO

from metronome_cli.report.words import cap, collapse_line, ms, percent, plural, span
from metronome_cli.run.observer import Snapshot
from metronome_cli.ui.glyphs import printable

LEAST_INTERVAL_S = 1.0


class PlainLines:
    """An observer that writes lines. A stream that fails is not written to again."""

    def __init__(
        self,
        stream: TextIO,
        *,
        every_s: float = LEAST_INTERVAL_S,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._stream: TextIO | None = stream
        self._every_s = every_s
        self._now = now
        self._began_s = now()
        self._printed_s = float("-inf")
        self._pending: Snapshot | None = None
        self._conditions_said = False

    def phase(self, name: str, detail: str) -> None:
        """A new phase began."""
        self._flush()
        self._line(f"{name}: {detail}" if detail else name)

    def snapshot(self, snapshot: Snapshot) -> None:
        """A line, or kept until the next one is due."""
        self._pending = snapshot
        if self._now() - self._printed_s >= self._every_s:
            self._flush()

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """A judged point and a collapse get a line; other facts go to the events file."""
        if kind == "point":
            self._flush()
            reason = f" ({data['reason']})" if data.get("reason") else ""
            self._line(f"{plural(int(data.get('sessions', 0)), 'session')}: {data.get('verdict')}{reason}")
        elif kind == "collapse":
            self._flush()
            self._line(collapse_line(data))

    def notice(self, message: str) -> None:
        """One line for the user."""
        self._line(message)

    def close(self) -> None:
        """Print what is pending."""
        self._flush()
        self._stream = None

    def _flush(self) -> None:
        snapshot, self._pending = self._pending, None
        if snapshot is None:
            return
        self._printed_s = self._now()
        if not self._conditions_said and snapshot.has_sessions:
            self._conditions_said = True
            self._line(conditions_line(snapshot))
        self._line(window_line(snapshot) if snapshot.has_sessions else progress_line(snapshot))

    def _line(self, text: str) -> None:
        if self._stream is None:
            return
        stamp = f"[{self._now() - self._began_s:7.1f} s] "
        try:
            self._stream.write(stamp + printable(text, self._stream) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None


def conditions_line(snap: Snapshot) -> str:
    """What holds for every window of the run."""
    weights = "random weights, " if snap.random_weights else ""
    return f"{weights}{snap.clock} clock, deadline {ms(snap.deadline_ms)} ms"


def progress_line(snap: Snapshot) -> str:
    """How far work without sessions is, in one line."""
    return " | ".join([f"{snap.phase} {snap.detail}", *_progress(snap)])


def window_line(snap: Snapshot) -> str:
    """One window in one line."""
    pool = snap.occupancy is not None
    parts = [
        f"{snap.phase} {plural(snap.admitted, 'session')}",
        (f"{snap.running} running {snap.waiting} waiting " if pool else "") + f"{snap.shed} shed",
        f"p50 {ms(snap.p50_ms)} p99 {ms(snap.p99_ms)} max {ms(snap.max_ms)} of {ms(snap.deadline_ms)} ms",
        f"{plural(snap.misses, 'miss')} {snap.empty_frames} empty in {plural(snap.frames, 'frame')}",
    ]
    if snap.occupancy is not None:
        parts.append(f"pool {percent(snap.occupancy)}")
    if snap.cap is not None:
        parts.append(f"cap {cap(snap.cap)}")
    return " | ".join([*parts, *_progress(snap)])


def _progress(snap: Snapshot) -> list[str]:
    if snap.progress is None:
        return []
    left = f", about {span(snap.eta_s)} left" if snap.eta_s is not None else ""
    return [f"{percent(snap.progress)} done{left}"]
