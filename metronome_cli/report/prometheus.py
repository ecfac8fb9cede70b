"""A run's own series in Prometheus' text format (version 0.0.4).

Counters and the latency histogram add up the measured windows of all trials of a command; warm-up is left out. Gauges
are those of the last window; a gauge without data is absent. Latency runs from the planned due time of a frame, on the
clock that `metronome_run_info` names: the virtual clock advances faster than the scraper's. Bounds are exact to
0.25 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

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
    "metronome_frame_latency_seconds", "histogram", "Time from the planned due time of a frame to its answer."
)
FRAMES = Series("metronome_frames_total", "counter", "Frames answered.")
MISSES = Series("metronome_deadline_misses_total", "counter", "Frames answered after their deadline.")
EMPTY = Series("metronome_empty_frames_total", "counter", "Frames that owed output and had none.")
STEPS = Series("metronome_batches_total", "counter", "Batches: engine steps, or periods of a server.")
POINTS = Series("metronome_trials_total", "counter", "Trials, by verdict.")
COLLAPSES = Series("metronome_collapses_total", "counter", "Silent collapses observed.")
SESSIONS = Series("metronome_sessions", "gauge", "Open sessions: running, or waiting for KV memory.")
OFFERED = Series("metronome_sessions_offered", "gauge", "Sessions offered in this phase.")
SHED = Series(
    "metronome_sessions_shed", "gauge", "Sessions rejected or closed by admission control in this phase."
)
CAP = Series("metronome_admission_limit_sessions", "gauge", "Session limit of the controller.")
OCCUPANCY = Series("metronome_kv_pool_occupancy_ratio", "gauge", "Share of the KV pool in use, 0 to 1.")
DEADLINE = Series("metronome_frame_deadline_seconds", "gauge", "Deadline of a frame.")
STAGES = Series("metronome_step_stage_seconds", "gauge", "Mean time of a batch in each stage, last window.")
PROGRESS = Series(
    "metronome_progress_ratio", "gauge", "Share of the command, or of the search time, that is done, 0 to 1."
)
CLOCK = Series("metronome_trial_clock_seconds", "gauge", "Time on the trial clock in this phase.")
INFO = Series("metronome_run_info", "gauge", "Always 1; the labels describe the run.")
ALL = (
    LATENCY, FRAMES, MISSES, EMPTY, STEPS, POINTS, COLLAPSES, SESSIONS, OFFERED, SHED, CAP, OCCUPANCY, DEADLINE,
    STAGES, PROGRESS, CLOCK, INFO,
)  # fmt: skip


class CounterTotals:
    """Sums over all windows."""

    def __init__(self) -> None:
        self.frames = self.misses = self.empty = self.steps = self.collapses = 0
        self.points: Counter[str] = Counter()
        self.latency_sum_s = 0.0
        self._at_most: dict[float, int] = {}

    def add(self, window: WindowHistogram) -> None:
        """Add a window."""
        self.frames += window.frames
        self.misses += window.misses
        self.empty += window.empty_frames
        self.steps += window.steps
        self.latency_sum_s += window.latency_sum_ms / 1e3
        for bound, count in zip(window.bounds_ms, window.at_most, strict=True):
            self._at_most[bound] = self._at_most.get(bound, 0) + count

    def rows(self) -> Iterator[tuple[Series, list[Row]]]:
        """Yield the counters and the histogram."""
        buckets: list[Row] = [
            ("_bucket", {"le": str(bound / 1e3)}, count) for bound, count in sorted(self._at_most.items())
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
    """Yield the state of the last window. A value of None has no row."""
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
    """Return the page. A series without rows is left out."""
    return generate_latest(_Page(parts)).decode()


class _Page(Collector):
    """Series of one scrape, as the client library asks for them."""

    def __init__(self, parts: Iterable[tuple[Series, list[Row]]]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        for series, rows in self._parts:
            if rows:
                metric = Metric(series.name.removesuffix("_total"), series.help, series.kind)
                for end, labels, value in rows:
                    metric.add_sample(series.name + end, dict(labels), float(value))
                yield metric
