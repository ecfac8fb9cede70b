"""What a run counts: one entry a frame, one a step.

Latency of a frame: the instant its answer is available minus its planned due time, on the run's own clock. Due
times come from the plan and never move, so a late frame delays nobody's due time (no coordinated omission).
A frame is a miss when its latency exceeds the deadline, and empty when an answer was due and nothing came. A
step's latency is that of its latest frame. Left out: audio capture, the network, playback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from metronome_cli.measure.histogram import LatencyHistogram

FrameKind = Literal["ok", "late", "empty"]
RECENT_STEPS = 200
TREND_STEPS = 8192


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """One answered frame. Times in seconds of the run's clock."""

    session: int
    due_s: float
    done_s: float
    expected: int
    delivered: int

    @property
    def latency_ms(self) -> float:
        return (self.done_s - self.due_s) * 1e3

    @property
    def empty(self) -> bool:
        return self.expected > 0 and self.delivered == 0


@dataclass(slots=True)
class Tally:
    """Counts over some span: a window, or a whole point."""

    deadline_ms: float
    frames: int = 0
    steps: int = 0
    misses: int = 0
    missed_steps: int = 0
    empty_frames: int = 0
    empty_steps: int = 0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    step_latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    stages_s: dict[str, float] = field(default_factory=dict)
    limits_ms: tuple[float, ...] = ()  # for each, how many steps and frames went over
    steps_over: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps_over = [0] * len(self.limits_ms)

    def add(self, records: Sequence[FrameRecord], stages_s: Mapping[str, float]) -> float:
        """Count one step's frames; its worst latency in ms."""
        worst = max(record.latency_ms for record in records)
        late = sum(record.latency_ms > self.deadline_ms for record in records)
        empty = sum(record.empty for record in records)
        self.frames += len(records)
        self.steps += 1
        self.misses += late
        self.missed_steps += late > 0
        self.empty_frames += empty
        self.empty_steps += empty > 0
        for record in records:
            self.latency.add(record.latency_ms)
        self.step_latency.add(worst)
        for index, limit in enumerate(self.limits_ms):
            self.steps_over[index] += worst > limit
        for stage, seconds in stages_s.items():
            self.stages_s[stage] = self.stages_s.get(stage, 0.0) + seconds
        return worst

    def stages_ms(self) -> dict[str, float]:
        """Mean milliseconds a step in each stage."""
        return (
            {name: seconds * 1e3 / self.steps for name, seconds in self.stages_s.items()}
            if self.steps
            else {}
        )


class Ledger:
    """The whole run's tally, the current window's, the recent steps, and each session's streak."""

    def __init__(self, deadline_ms: float, limits_ms: Sequence[float] = ()) -> None:
        self.total = Tally(deadline_ms, limits_ms=tuple(limits_ms))
        self.window = Tally(deadline_ms)
        self.recent: deque[tuple[float, FrameKind]] = deque(maxlen=RECENT_STEPS)
        self.trend: deque[float] = deque(maxlen=TREND_STEPS)  # worst latency of each step, ms, oldest first
        self.lateness = LatencyHistogram()  # of the generator, ms
        self.worst_streak = 0
        self.last_output_s: float | None = None
        self.still_s = 0.0  # in which this process did not run at all (measure/stall.py)
        self._streaks: dict[int, int] = {}

    def add(self, records: Sequence[FrameRecord], stages_s: Mapping[str, float], late_s: float) -> None:
        """Count one step, begun `late_s` after the generator could have begun it."""
        self.window.add(records, stages_s)
        worst = self.total.add(records, stages_s)
        self.lateness.add(late_s * 1e3)
        self.trend.append(worst)
        for record in records:
            self._follow(record)
        empty = any(record.empty for record in records)
        self.recent.append((worst, "empty" if empty else "late" if worst > self.total.deadline_ms else "ok"))

    def _follow(self, record: FrameRecord) -> None:
        streak = self._streaks.get(record.session, 0) + 1 if record.latency_ms > self.total.deadline_ms else 0
        self._streaks[record.session] = streak
        self.worst_streak = max(self.worst_streak, streak)
        if record.delivered:
            self.last_output_s = record.done_s

    def forget(self, session: int) -> None:
        """The session is over; its streak ends with it."""
        self._streaks.pop(session, None)

    def close_window(self) -> Tally:
        """The window that ends now; a new one begins."""
        ended, self.window = self.window, Tally(self.total.deadline_ms)
        return ended
