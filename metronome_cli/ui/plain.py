"""Plain lines for logs: no control codes, one line per window, at most one per second of wall time.

A window that was passed over is printed when its phase ends, so every phase shows at least its last one. If there is
no event for 10 s, while a model loads or frames are far apart, a line names what is awaited.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from metronome_cli.core.formatting import (
    collapse_line,
    format_limit,
    format_measured,
    format_ms,
    format_seconds,
    percent,
    plural,
    time_line,
)
from metronome_cli.results.events import Snapshot
from metronome_cli.ui.glyphs import printable

LEAST_INTERVAL_S = 1.0
QUIET_S = 10.0
TICK_S = 1.0


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
        self._awaited = ""
        self._told_s = self._line_s = self._began_s
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._tick, name="metronome-ticker", daemon=True).start()

    def phase(self, name: str, detail: str) -> None:
        """A new phase began."""
        self._flush()
        self._await(f"{name}: {detail}" if detail else name)
        self._line(self._awaited)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Print a line, or keep it until the next one is due."""
        self._pending = snapshot
        self._await(snap_name(snapshot))
        if self._now() - self._printed_s >= self._every_s:
            self._flush()

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """A judged point and a collapse get a line; other facts go to the events file."""
        if kind == "trial":
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
        self._closed.set()
        self._flush()
        self._stream = None

    def still(self) -> None:
        """Print what is awaited if the last line was printed long ago."""
        now = self._now()
        if self._awaited and now - self._line_s >= QUIET_S:
            self._line(f"{self._awaited} ({format_seconds(now - self._told_s)} without an update)")

    def _tick(self) -> None:
        while not self._closed.wait(TICK_S):
            self.still()

    def _await(self, what: str) -> None:
        self._awaited, self._told_s = what, self._now()

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
        with self._lock:
            if self._stream is None:
                return
            self._line_s = self._now()
            stamp = f"[{self._line_s - self._began_s:7.1f} s] "
            try:
                self._stream.write(stamp + printable(text, self._stream) + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                self._stream = None


def snap_name(snap: Snapshot) -> str:
    """ "confirm: 25 sessions, step 210 of 480"."""
    return f"{snap.phase}: {snap.detail}" + (f", {snap.done}" if snap.done else "")


def conditions_line(snap: Snapshot) -> str:
    """What holds for every window of the run."""
    weights = "random weights, " if snap.random_weights else ""
    return f"{weights}{snap.clock} clock, deadline {format_measured(snap.deadline_ms, 'ms')}"


def progress_line(snap: Snapshot) -> str:
    """How far work without sessions is, in one line."""
    return " | ".join([f"{snap.phase} {snap.detail}", _progress(snap)])


def window_line(snap: Snapshot) -> str:
    """One window in one line."""
    limit = format_measured(snap.deadline_ms, "ms")
    parts = [f"{snap.phase}: {snap.admitted:,} open", *running_waiting(snap)]
    parts += [f"{snap.shed:,} shed"] if snap.shed else []
    parts += [
        f"p50 {format_ms(snap.p50_ms)} p99 {format_ms(snap.p99_ms)} max {format_ms(snap.max_ms)} ms of {limit}",
        f"{plural(snap.misses, 'miss')} {snap.empty_frames:,} empty in {plural(snap.frames, 'frame')}",
    ]
    if snap.occupancy is not None:
        parts.append(f"pool {percent(snap.occupancy)}")
    if snap.cap is not None:
        parts.append(f"cap {format_limit(snap.cap)}")
    parts += [snap.done] if snap.done else []
    return " | ".join([*parts, _progress(snap)])


def running_waiting(snap: Snapshot) -> list[str]:
    """Running and waiting sessions; those of a server are of its last scrape, and of all its clients."""
    if snap.occupancy is None:
        return []
    whose = "server: " if snap.told_by_server else ""
    return [f"{whose}{snap.running:,} running {snap.waiting:,} waiting"]


def _progress(snap: Snapshot) -> str:
    return time_line(snap.progress, snap.eta_s, snap.elapsed_s, snap.budget_s)
