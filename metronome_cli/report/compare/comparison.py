"""Compares reports: what changed, whether it stands out from the noise of repeats, and whether a gate fails.

A side is one report or several of the same set-up. A gate fails when the change for the worse reaches its
limit and stands out from noise (report/compare/noise.py); where the limit is reached but the interval of the
change includes none at all, it is inconclusive, and so it is without data. Without repeats there is no
noise to judge by, and reaching the limit is enough. A gate that is not reached passes: it detects, it
does not prove. A comparison with gates also fails if a larger share of the runs failed than on the base.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from metronome_cli.core.errors import UsageError, Verdict, exit_code_for
from metronome_cli.core.formatting import duration, format_measured, plural
from metronome_cli.report.compare.compared_metrics import (
    ComparedMetric,
    common_sessions,
    failed,
    judged,
    metrics_of,
)
from metronome_cli.report.compare.estimates import change_interval, told
from metronome_cli.report.compare.gates import Gate
from metronome_cli.report.compare.mismatch import mismatches, remarks
from metronome_cli.report.compare.noise import interval
from metronome_cli.report.event_log import EVENTS_FILE
from metronome_cli.report.rebuild import load_run
from metronome_cli.report.report_file import REPORT_FILE
from metronome_cli.results.part import ReportPart
from metronome_cli.results.run_report import Report

COMPARE_SCHEMA: Literal["metronome.compare/1"] = "metronome.compare/1"
FAILED_RUNS = "failed_runs"
NOTHING_COMMON = "no number of sessions was judged in every report"


class MetricChange(ReportPart):
    """One metric on both sides. Values and changes in `unit`; `relative` is change / base."""

    metric: str
    unit: str
    better: Literal["lower", "higher"]
    base: float | None
    new: float | None
    change: float | None = None
    relative: float | None = None
    low: float | None = None  # 95 % interval of the change; null where the noise is not known
    high: float | None = None
    gate: str | None = None
    verdict: Verdict | None = None
    reason: str = ""


class Mismatch(ReportPart):
    """Something that differs between the sides and bears on the result."""

    what: str
    base: str
    new: str


class ReportComparison(ReportPart):
    """The answer of `metronome compare`."""

    schema_: Literal["metronome.compare/1"] = Field(default=COMPARE_SCHEMA, alias="schema")
    state: Literal["compared", "no_baseline"]
    verdict: Verdict
    exit_code: int
    base_reports: int
    new_reports: int
    sessions: int | None = None  # at which latency and the like are compared
    answer: str
    changes: list[MetricChange] = Field(default_factory=list)
    mismatches: list[Mismatch] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """What to compare. A path is a report, a run's directory, or a directory of several of either."""

    base: Path
    new: Path
    gates: tuple[Gate, ...] = ()
    allow_mismatch: bool = False
    allow_missing_baseline: bool = False


def compare(plan: ComparisonPlan) -> ReportComparison:
    """Compare. Raises UsageError for a side that cannot be read and for sides that may not be compared."""
    new = load_side(plan.new)
    if not new:
        raise UsageError(f"{plan.new}: no report there", hint=f"give a run's directory or its {REPORT_FILE}")
    base = load_side(plan.base)
    if not base and not plan.allow_missing_baseline:
        raise UsageError(
            f"{plan.base}: no baseline there",
            hint="check the path; --allow-missing-baseline for a first run that has none",
        )
    if not base:
        return _no_baseline(plan, new)
    different = mismatches(base, new)
    if different and not plan.allow_mismatch:
        shown = "; ".join(f"{what}: {one} on base, {other} on new" for what, one, other in different[:4])
        more = f"; and {len(different) - 4} more" if len(different) > 4 else ""
        raise UsageError(
            f"these reports do not measure the same: {shown}{more}",
            hint="compare runs of the same machine, profile and settings, or pass --allow-mismatch",
        )
    return _compared(plan, base, new, [Mismatch(what=w, base=b, new=n) for w, b, n in different])


def load_side(path: Path) -> list[Report]:
    """The reports of one side, in order of name; none where there is nothing. Raises UsageError."""
    if not path.exists():
        return []
    if not path.is_dir() or _is_run(path):
        return [load_run(path)]
    found = [*path.glob("*.json"), *(run for run in path.iterdir() if run.is_dir() and _is_run(run))]
    return [load_run(each) for each in sorted(found)]


def _is_run(directory: Path) -> bool:
    return (directory / REPORT_FILE).exists() or (directory / EVENTS_FILE).exists()


def _no_baseline(plan: ComparisonPlan, new: Sequence[Report]) -> ReportComparison:
    return ReportComparison(
        state="no_baseline",
        verdict="pass",
        exit_code=int(exit_code_for("complete", "pass")),
        base_reports=0,
        new_reports=len(new),
        answer=f"No baseline at {plan.base}: nothing was compared. Keep this run as the baseline of the next.",
    )


def _compared(
    plan: ComparisonPlan, base: Sequence[Report], new: Sequence[Report], different: list[Mismatch]
) -> ReportComparison:
    sessions = common_sessions([*base, *new])
    gates = {gate.metric.name: gate for gate in plan.gates}
    wanted = {metric.name: metric for metric in [*metrics_of([*base, *new]), *(g.metric for g in plan.gates)]}
    changes = [_change(metric, base, new, sessions, gates.get(name)) for name, metric in wanted.items()]
    changes = [c for c in changes if c.gate or c.base is not None or c.new is not None]
    if plan.gates and FAILED_RUNS not in gates:
        _gate_failed_runs(next(change for change in changes if change.metric == FAILED_RUNS), base, new)
    verdict = _overall(changes)
    return ReportComparison(
        state="compared",
        verdict=verdict,
        exit_code=int(exit_code_for("complete", verdict)),
        base_reports=len(base),
        new_reports=len(new),
        sessions=sessions,
        answer=_answer(changes, verdict),
        changes=changes,
        mismatches=different,
        notes=_notes(base, new, sessions),
    )


def _change(
    metric: ComparedMetric,
    base: Sequence[Report],
    new: Sequence[Report],
    sessions: int | None,
    gate: Gate | None,
) -> MetricChange:
    left, right = _values(metric, base, sessions), _values(metric, new, sessions)
    result = MetricChange(
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        base=statistics.fmean(left) if left else None,
        new=statistics.fmean(right) if right else None,
        gate=gate.text if gate else None,
    )
    if result.base is not None and result.new is not None:
        result.change = result.new - result.base
        result.relative = result.change / result.base if result.base else None
        known = interval(left, right)
        if known is None and metric.name == "estimate":
            known = change_interval(base, new)
        result.low, result.high = known or (None, None)
    if gate is not None:
        common = sessions is not None or not metric.at_sessions
        result.verdict, result.reason = _judge(gate, result) if common else ("inconclusive", NOTHING_COMMON)
        missing = len(base) + len(new) - len(left) - len(right)
        if result.verdict == "pass" and missing:
            result.verdict, result.reason = "inconclusive", f"{plural(missing, 'report')} without data"
    return result


def _gate_failed_runs(change: MetricChange, base: Sequence[Report], new: Sequence[Report]) -> None:
    """Judge the share of failed runs; only one that rose gets a verdict and is shown."""
    before, after = (sum(map(failed, side)) for side in (base, new))
    if after / len(new) <= before / len(base):
        return
    change.gate, change.verdict = FAILED_RUNS, "fail"
    change.reason = f"{after} of {plural(len(new), 'run')} failed on new, {before} of {len(base)} on base"


def _values(metric: ComparedMetric, side: Sequence[Report], sessions: int | None) -> list[float]:
    points = [judged(report).get(sessions) if sessions is not None else None for report in side]
    found = [metric.read(report, point) for report, point in zip(side, points, strict=True)]
    return [value for value in found if value is not None]


def _judge(gate: Gate, change: MetricChange) -> tuple[Verdict, str]:
    if change.change is None or change.base is None:
        return "inconclusive", _missing(change)
    sign = 1.0 if change.better == "lower" else -1.0
    worse = sign * change.change
    limit = gate.limit * abs(change.base) if gate.relative else gate.limit
    if worse <= 0 or worse < limit:
        return "pass", ""
    if change.low is None or change.high is None:
        return "fail", "reaches the limit; the noise is not known, since no side has repeats"
    if min(sign * change.low, sign * change.high) <= 0:
        return "inconclusive", "reaches the limit, but not beyond the noise of the repeats"
    return "fail", "reaches the limit, beyond the noise of the repeats"


def _missing(change: MetricChange) -> str:
    """Which side has no figure."""
    without = [name for name, value in (("base", change.base), ("new", change.new)) if value is None]
    return "no data on either side" if len(without) == 2 else f"no data on {without[0]}"


def _overall(changes: Sequence[MetricChange]) -> Verdict:
    verdicts = {change.verdict for change in changes}
    return "fail" if "fail" in verdicts else "inconclusive" if "inconclusive" in verdicts else "pass"


def _answer(changes: Sequence[MetricChange], verdict: Verdict) -> str:
    gated = [change for change in changes if change.gate]
    if not gated:
        return "Compared without a gate."
    hit = [change for change in gated if change.verdict == verdict]
    if verdict != "inconclusive":
        said = {"pass": "No gate was reached", "fail": "Worse"}[verdict]
        return f"{said}: {', '.join(map(_said, hit))}."
    by_reason: dict[str, list[str]] = {}
    for change in hit:
        by_reason.setdefault(change.reason, []).append(_said(change))
    return "Inconclusive: " + "; ".join(f"{', '.join(said)}: {why}" for why, said in by_reason.items()) + "."


def _said(change: MetricChange) -> str:
    """ "p99 78 ms to 83 ms (gate 5%)"; "p99 (gate 5%)" where a side has no figure."""
    base, new = value_text(change.base, change.unit), value_text(change.new, change.unit)
    moved = "" if change.change is None else f" {base} to {new}"
    limit = (change.gate or "").partition(":")[2]
    return f"{change.metric}{moved}" + (f" (gate {limit})" if limit else f" ({change.reason})")


def value_text(value: float | None, unit: str) -> str:
    """A value as every form of a comparison writes it: "78.4 ms", "0.3 %", "2 min 28 s"."""
    if unit == "ms" and value is not None:
        return f"{value:.1f} ms"
    return duration(value) if unit == "s" else format_measured(value, unit)


def _notes(base: Sequence[Report], new: Sequence[Report], sessions: int | None) -> list[str]:
    found = [*filter(None, [told(base, new)]), *remarks(base, new)]
    if any(report.capacity for report in [*base, *new]):
        if sessions is None:
            found.append(
                "No number of sessions was judged in every report, so latency cannot be compared: "
                "run both with the same --sessions."
            )
        else:
            found.append(f"Latency, misses, pool and stages are compared at {plural(sessions, 'session')}.")
    if len(base) == len(new) == 1:
        found.append("One report on each side: the noise is not known.")
    return found
