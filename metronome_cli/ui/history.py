"""What the live view remembers: curves of the current phase, its latencies, the trials, an event log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from metronome_cli.results.events import Snapshot

MOST_SAMPLES = 2000  # per curve; every second one is dropped beyond
FIT_SHARE = 1 / 3  # of the curve, for its slope
FEWEST = 4
FULL = 0.995


@dataclass(frozen=True, slots=True)
class Sample:
    """Times on the run's clock, s; latency in ms; occupancy 0 to 1. None: not known."""

    t_s: float
    p99_ms: float | None
    occupancy: float | None


@dataclass(slots=True)
class ViewHistory:
    """All of it since the phase began; trials and events since the command began."""

    samples: list[Sample] = field(default_factory=list)
    bounds_ms: tuple[float, ...] = ()
    counts: list[int] = field(default_factory=list)  # frames of each bucket, the last one beyond all bounds
    trials: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[float, str, str]] = field(default_factory=list)  # elapsed s, text, style
    probed: list[dict[str, Any]] = field(default_factory=list)  # cells of a cost surface as they are measured
    fill_t_s: float | None = None  # forecast of a watched server

    def new_phase(self) -> None:
        """Curves and latencies begin again."""
        self.samples, self.counts, self.bounds_ms = [], [], ()

    def add(self, snap: Snapshot) -> None:
        """One window. A clock that went back is a new trial."""
        if self.samples and snap.run_s < self.samples[-1].t_s:
            self.new_phase()
        self.sample(Sample(snap.run_s, snap.p99_ms, snap.occupancy))
        window = snap.window
        if window is None:
            return
        if tuple(window.bounds_ms) != self.bounds_ms:
            self.bounds_ms, self.counts = tuple(window.bounds_ms), [0] * (len(window.bounds_ms) + 1)
        edges = [0, *window.at_most, window.frames]
        for index in range(len(self.counts)):
            self.counts[index] += edges[index + 1] - edges[index]

    def sample(self, sample: Sample) -> None:
        """A point of the curves."""
        self.samples.append(sample)
        if len(self.samples) > MOST_SAMPLES:
            self.samples = self.samples[::2]

    def say(self, elapsed_s: float, text: str, style: str = "") -> None:
        """A line of the event log."""
        self.events = [*self.events[-199:], (elapsed_s, text, style)]

    def full_in_s(self) -> float | None:
        """Time until the pool is full at its recent slope, on the run's clock; None if it does not fill."""
        known = [(s.t_s, s.occupancy) for s in self.samples if s.occupancy is not None]
        if not known or known[-1][1] >= FULL:
            return None
        now_s, occupancy = known[-1]
        if self.fill_t_s is not None:
            return max(0.0, self.fill_t_s - now_s)
        recent = known[-max(FEWEST, math.ceil(len(known) * FIT_SHARE)) :]
        rate = slope(recent)
        return (1 - occupancy) / rate if rate is not None and rate > 1e-7 else None


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Least-squares slope of y over x; None with fewer than FEWEST points or no spread in x."""
    if len(points) < FEWEST:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread > 0 else None


def clock_text(seconds: float) -> str:
    """ "1:54", "1:02:10"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
