"""Metrics of a report that can be compared: name, unit, which way is better, where it is read.

Latency, misses and the like depend on the number of sessions, so they are read at one number that both sides
have judged; a screening trial is no judgement. Stage times are named `stage.NAME`. The metric of an objective
that the report has no field for, such as p95, is read from the judged objective. A run whose verdict is fail
counts as 0 sessions if it confirmed none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from metronome_cli.core.errors import UsageError
from metronome_cli.measure.objective import Objective, metric_and_unit
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
    if report.capacity is None:
        return None
    safe = report.capacity.safe_sessions
    return 0 if safe is None and report.verdict == "fail" else safe


def failed(report: Report) -> bool:
    """True if an objective was refuted, or if the run ended with an error."""
    return report.verdict == "fail" or report.status == "failed"


def _of_objective(name: str) -> Read:
    def read(point: TrialResult) -> float | None:
        return next(
            (o.measured for o in point.objectives if Objective.parse(o.objective).metric == name), None
        )

    return _at(read)


METRICS: dict[str, ComparedMetric] = {
    metric.name: metric
    for metric in (
        ComparedMetric("safe_sessions", "count", "higher", _capacity),
        ComparedMetric(
            "estimate",
            "count",
            "higher",
            lambda r, _: r.capacity.estimate.sessions if r.capacity and r.capacity.estimate else None,
        ),
        ComparedMetric("failed_runs", "fraction", "lower", lambda report, _: float(failed(report))),
        ComparedMetric("p50", "ms", "lower", _at(lambda p: p.latency_ms.p50), True),
        ComparedMetric("p90", "ms", "lower", _at(lambda p: p.latency_ms.p90), True),
        ComparedMetric("p99", "ms", "lower", _at(lambda p: p.latency_ms.p99), True),
        ComparedMetric("p99.9", "ms", "lower", _at(lambda p: p.latency_ms.p999), True),
        ComparedMetric("max", "ms", "lower", _at(lambda p: p.latency_ms.max), True),
        ComparedMetric("misses", "fraction", "lower", _share(lambda p: p.misses), True),
        ComparedMetric("empty", "fraction", "lower", _share(lambda p: p.empty_frames), True),
        ComparedMetric("occupancy", "fraction", "lower", _at(lambda p: p.occupancy_max), True),
        ComparedMetric(
            "miss_streak", "count", "lower", _at(lambda p: p.miss_streak if p.batches else None), True
        ),
        ComparedMetric(
            "fell_behind",
            "count",
            "lower",
            _at(lambda p: p.sessions_fell_behind if p.batches else None),
            True,
        ),
        ComparedMetric(
            "fill_time", "s", "higher", lambda r, p: r.forecast.fill_time_s.estimate if r.forecast else None
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
    """The metric of that name, a `stage.NAME` or the metric of any objective; None if there is none."""
    if name.startswith(STAGE) and len(name) > len(STAGE):
        stage = name.removeprefix(STAGE)
        return ComparedMetric(name, "ms", "lower", _at(lambda point: point.stages_ms.get(stage)), True)
    if name in METRICS:
        return METRICS[name]
    try:
        metric, unit = metric_and_unit(name)
    except UsageError:
        return None
    return METRICS.get(metric) or ComparedMetric(metric, unit, "lower", _of_objective(metric), True)


def metrics_of(reports: Sequence[Report]) -> list[ComparedMetric]:
    """Every metric, with the stages and the objectives that the reports' points have."""
    points = [point for report in reports if report.capacity for point in report.capacity.trials]
    names = dict.fromkeys(METRICS)
    names.update(dict.fromkeys(Objective.parse(o.objective).metric for p in points for o in p.objectives))
    names.update(dict.fromkeys(STAGE + name for point in points for name in point.stages_ms))
    return [metric for metric in map(find_metric, names) if metric is not None]


def judged(report: Report) -> dict[int, TrialResult]:
    """For each number of sessions that was judged, the point with most steps."""
    best: dict[int, TrialResult] = {}
    for point in report.capacity.trials if report.capacity else []:
        held = best.get(point.sessions)
        if point.purpose != "screen" and (held is None or point.batches > held.batches):
            best[point.sessions] = point
    return best


def common_sessions(reports: Sequence[Report]) -> int | None:
    """A number of sessions that every report has judged: the first one's safe number, else the largest."""
    shared = set.intersection(*(set(judged(report)) for report in reports)) if reports else set()
    safe = reports[0].capacity.safe_sessions if reports and reports[0].capacity else None
    return safe if safe in shared else max(shared, default=None)
