"""A run's own series in Prometheus' text format (version 0.0.4).

Counters and the latency histogram add up the measured windows of the whole command, from one number of sessions
to the next; the warm-up of each is left out. Gauges are those of the last window, and are absent where there is
no data. A frame's latency runs from its planned due time on the run's own clock, which `metronome_run_info`
names: on the virtual clock a scrape sees many of its seconds in one of the scraper's. Histogram counts are known
to a quarter of a percent of each bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from metronome_cli.results.events import Snapshot, WindowHistogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
Row = tuple[str, Labels, float]  # (what follows the name, labels, value)


@dataclass(frozen=True, slots=True)
class Series:
    """One metric: its name, kind and help."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str


LATENCY = Series(
    "metronome_frame_latency_seconds", "histogram", "From a frame's planned due time to its answer."
)
FRAMES = Series("metronome_frames_total", "counter", "Frames answered.")
MISSES = Series("metronome_deadline_misses_total", "counter", "Frames answered after their deadline.")
EMPTY = Series("metronome_empty_frames_total", "counter", "Frames that owed an answer and brought nothing.")
STEPS = Series("metronome_batches_total", "counter", "Engine steps.")
POINTS = Series("metronome_trials_total", "counter", "Numbers of sessions judged, by verdict.")
COLLAPSES = Series("metronome_collapses_total", "counter", "Silent collapses seen.")
SESSIONS = Series(
    "metronome_sessions", "gauge", "Open sessions, by whether they are answered or wait for memory."
)
OFFERED = Series("metronome_sessions_offered", "gauge", "Sessions that asked for a seat in this phase.")
SHED = Series("metronome_sessions_shed", "gauge", "Sessions turned away or ended by admission in this phase.")
CAP = Series("metronome_admission_limit_sessions", "gauge", "The controller's cap.")
OCCUPANCY = Series("metronome_kv_pool_occupancy_ratio", "gauge", "Share of the KV pool in use, 0 to 1.")
DEADLINE = Series("metronome_frame_deadline_seconds", "gauge", "What a frame's latency must not exceed.")
STAGES = Series("metronome_step_stage_seconds", "gauge", "Mean time of a step in each stage, last window.")
PROGRESS = Series(
    "metronome_progress_ratio", "gauge", "Share done of the command, or of a search's time, 0 to 1."
)
CLOCK = Series("metronome_trial_clock_seconds", "gauge", "The run's own clock in this phase.")
INFO = Series("metronome_run_info", "gauge", "Always 1; its labels say what is running.")
ALL = (
    LATENCY, FRAMES, MISSES, EMPTY, STEPS, POINTS, COLLAPSES, SESSIONS, OFFERED, SHED, CAP, OCCUPANCY, DEADLINE,
    STAGES, PROGRESS, CLOCK, INFO,
)  # fmt: skip


class CounterTotals:
    """Windows added up."""

    def __init__(self) -> None:
        self.frames = self.misses = self.empty = self.steps = self.collapses = 0
        self.points: Counter[str] = Counter()
        self.latency_sum_s = 0.0
        self._at_most: dict[float, int] = {}

    def add(self, window: WindowHistogram) -> None:
        """One more window."""
        self.frames += window.frames
        self.misses += window.misses
        self.empty += window.empty_frames
        self.steps += window.steps
        self.latency_sum_s += window.latency_sum_ms / 1e3
        for bound, count in zip(window.bounds_ms, window.at_most, strict=True):
            self._at_most[bound] = self._at_most.get(bound, 0) + count

    def rows(self) -> Iterator[tuple[Series, list[Row]]]:
        """Counters and the histogram."""
        buckets: list[Row] = [
            ("_bucket", {"le": _number(bound / 1e3)}, count) for bound, count in sorted(self._at_most.items())
        ]
        end: list[Row] = [
            ("_bucket", {"le": "+Inf"}, self.frames), ("_sum", {}, self.latency_sum_s), ("_count", {}, self.frames)
        ]  # fmt: skip
        yield LATENCY, buckets + end
        yield FRAMES, [("", {}, self.frames)]
        yield MISSES, [("", {}, self.misses)]
        yield EMPTY, [("", {}, self.empty)]
        yield STEPS, [("", {}, self.steps)]
        yield (
            POINTS,
            [("", {"verdict": word}, self.points[word]) for word in ("pass", "fail", "inconclusive")],
        )
        yield COLLAPSES, [("", {}, self.collapses)]


def gauges(snapshot: Snapshot, version: str) -> Iterator[tuple[Series, list[Row]]]:
    """The last window's state; what is None has no row."""
    if snapshot.has_sessions:
        yield (
            SESSIONS,
            [
                ("", {"state": "running"}, snapshot.running),
                ("", {"state": "waiting"}, snapshot.waiting),
            ],
        )
        yield OFFERED, [("", {}, snapshot.offered)]
        yield SHED, [("", {}, snapshot.shed)]
        yield DEADLINE, [("", {}, snapshot.deadline_ms / 1e3)]
    plain: tuple[tuple[Series, float | None], ...] = (
        (CAP, snapshot.cap),
        (OCCUPANCY, snapshot.occupancy),
        (PROGRESS, snapshot.progress),
        (CLOCK, snapshot.run_s),
    )
    for series, value in plain:
        yield series, [] if value is None else [("", {}, value)]
    yield STAGES, [("", {"stage": stage}, each / 1e3) for stage, each in snapshot.stages_ms.items()]
    labels = {
        "version": version,
        "phase": snapshot.phase,
        "clock": snapshot.clock,
        "random_weights": str(snapshot.random_weights).lower(),
    }
    yield INFO, [("", labels, 1)]


def exposition(parts: Iterable[tuple[Series, list[Row]]]) -> str:
    """The page: HELP, TYPE and samples of each series that has any."""
    lines: list[str] = []
    for series, rows in parts:
        if rows:
            lines += [f"# HELP {series.name} {series.help}", f"# TYPE {series.name} {series.kind}"]
            lines += [f"{series.name}{end}{_labels(labels)} {_number(value)}" for end, labels, value in rows]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
