"""What of a report can be compared: name, unit, which way is better, where it is read.

Latency, misses and the like depend on the number of sessions, so they are read at one number that both sides
have judged; a short look of the search is no judgement. Stage times are named `stage.NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.run_report import Report

Better = Literal["lower", "higher"]
Read = Callable[[Report, TrialResult | None], float | None]


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """`at_sessions`: read at a number of sessions. Units are those of objectives, and `s`."""

    name: str
    unit: str
    better: Better
    read: Read
    at_sessions: bool = False


def _at(read: Callable[[TrialResult], float | None]) -> Read:
    return lambda report, point: None if point is None else read(point)


def _share(count: Callable[[TrialResult], int]) -> Read:
    return _at(lambda point: count(point) / point.frames if point.frames else None)


def _capacity(report: Report, point: TrialResult | None) -> float | None:
    return report.capacity.safe_sessions if report.capacity else None


METRICS: dict[str, ComparedMetric] = {
    metric.name: metric
    for metric in (
        ComparedMetric("safe_sessions", "count", "higher", _capacity),
        ComparedMetric("p50", "ms", "lower", _at(lambda p: p.latency_ms.p50), True),
        ComparedMetric("p90", "ms", "lower", _at(lambda p: p.latency_ms.p90), True),
        ComparedMetric("p99", "ms", "lower", _at(lambda p: p.latency_ms.p99), True),
        ComparedMetric("p99.9", "ms", "lower", _at(lambda p: p.latency_ms.p999), True),
        ComparedMetric("max", "ms", "lower", _at(lambda p: p.latency_ms.max), True),
        ComparedMetric("misses", "fraction", "lower", _share(lambda p: p.misses), True),
        ComparedMetric("empty", "fraction", "lower", _share(lambda p: p.empty_frames), True),
        ComparedMetric("occupancy", "fraction", "lower", _at(lambda p: p.occupancy_max), True),
        ComparedMetric("streak", "count", "lower", _at(lambda p: p.worst_streak if p.steps else None), True),
        ComparedMetric("lost_beat", "count", "lower", _at(lambda p: p.lost_beat if p.steps else None), True),
        ComparedMetric(
            "t_sat", "s", "higher", lambda r, p: r.forecast.t_sat_s.estimate if r.forecast else None
        ),
        ComparedMetric(
            "collapse_probability",
            "fraction",
            "lower",
            lambda r, p: r.forecast.collapse_probability if r.forecast else None,
        ),
        ComparedMetric(
            "max_sessions", "count", "higher", lambda r, p: r.forecast.max_sessions if r.forecast else None
        ),
    )
}
STAGE = "stage."


def find_metric(name: str) -> ComparedMetric | None:
    """The metric of that name; any `stage.NAME` is one."""
    if name.startswith(STAGE) and len(name) > len(STAGE):
        stage = name.removeprefix(STAGE)
        return ComparedMetric(name, "ms", "lower", _at(lambda point: point.stages_ms.get(stage)), True)
    return METRICS.get(name)


def metrics_of(reports: Sequence[Report]) -> list[ComparedMetric]:
    """Every metric, with the stages that the reports' points have."""
    points = [point for report in reports if report.capacity for point in report.capacity.points]
    stages = dict.fromkeys(name for point in points for name in point.stages_ms)
    found = [find_metric(STAGE + name) for name in stages]
    return [*METRICS.values(), *(metric for metric in found if metric is not None)]


def judged(report: Report) -> dict[int, TrialResult]:
    """For each number of sessions that was judged, the point with most steps."""
    best: dict[int, TrialResult] = {}
    for point in report.capacity.points if report.capacity else []:
        held = best.get(point.sessions)
        if point.role != "screen" and (held is None or point.steps > held.steps):
            best[point.sessions] = point
    return best


def common_sessions(reports: Sequence[Report]) -> int | None:
    """A number of sessions that every report has judged: the first one's safe number, else the largest."""
    shared = set.intersection(*(set(judged(report)) for report in reports)) if reports else set()
    safe = reports[0].capacity.safe_sessions if reports and reports[0].capacity else None
    return safe if safe in shared else max(shared, default=None)
