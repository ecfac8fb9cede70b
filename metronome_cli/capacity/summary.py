"""The summary of a run: the answer, its conditions and the limiting factor, in one sentence."""

from __future__ import annotations

from metronome_cli.capacity.by_delay import in_words
from metronome_cli.capacity.cycles import in_words as cycles_in_words
from metronome_cli.core.formatting import (
    duration,
    format_bound,
    format_measured,
    format_probability,
    format_seconds,
    format_time,
    percent,
    sessions,
)
from metronome_cli.results.capacity_result import Capacity, TrialResult
from metronome_cli.results.phrases import other_load, value_with_unit
from metronome_cli.results.policy_runs import PolicyRun, RepeatSeries
from metronome_cli.results.run_report import Report


def summarize(report: Report, decisive: TrialResult | None) -> str:
    """Return the summary that `capacity` prints. It states measured values only."""
    if report.policy_runs or report.repeats:
        return _interrupted(report) + " ".join(
            [*map(_policy_run, report.policy_runs), *map(_trials, report.repeats)]
        )
    capacity = report.capacity
    if capacity is None:
        return (
            "Interrupted before anything was measured." if report.status == "interrupted" else "Not measured."
        )
    if report.status == "failed":
        return f"Failed: {report.error}." + (f" Before that: {_safe(capacity, decisive)}" if decisive else "")
    if decisive is None:
        return (
            "Interrupted before anything was measured." if report.status == "interrupted" else "Not measured."
        )
    prefix, suffix = _interrupted(report), in_words(capacity.by_delay) + _on_a_busy_machine(report)
    if capacity.cycles is not None:
        suffix = cycles_in_words(capacity.cycles) + suffix
    if capacity.method == "single":
        return prefix + _single(capacity, decisive) + suffix
    if capacity.safe_sessions is None:
        return prefix + _no_safe(capacity, decisive) + suffix
    return prefix + _safe(capacity, decisive) + suffix


def _interrupted(report: Report) -> str:
    return "Interrupted. " if report.status == "interrupted" else ""


def _on_a_busy_machine(report: Report) -> str:
    busy = other_load(report)
    return f" All this on a busy machine: {busy}." if busy else ""


def _policy_run(run: PolicyRun) -> str:
    settled = (
        ""
        if run.mean_sessions_mid_run is None
        else f" holds {run.mean_sessions_mid_run:.0f} sessions on average"
    )
    if run.collapse is not None:
        last = run.collapse.last_output_s
        silent = "" if last is None else f", last output at {format_time(last)}"
        return (
            f"{run.name} ({run.policy}): admits more sessions than the KV pool can hold, "
            f"full at {format_time(run.collapse.t_s)}{silent}, "
            f"{sessions(run.sessions_lost)} lost."
        )
    if run.no_admission_reason:
        return f"{run.name} ({run.policy}): {run.no_admission_reason}."
    full = "" if run.occupancy_max is None else f", pool at most {percent(run.occupancy_max)} full"
    return f"{run.name} ({run.policy}):{settled}{full}, {sessions(run.sessions_lost)} lost."


def _trials(series: RepeatSeries) -> str:
    predicted = series.forecast_probability
    text = f"{series.policy}: {series.collapsed} of {series.repeats} runs collapsed"
    if series.collapsed_share_low is not None and series.collapsed_share_high is not None:
        text += f" (90 % interval {percent(series.collapsed_share_low)} to {percent(series.collapsed_share_high)})"
    return text + ("." if predicted is None else f"; predicted {format_probability(predicted)}.")


def _safe(capacity: Capacity, point: TrialResult) -> str:
    if capacity.safe_sessions is None:
        return "No number of sessions was confirmed."
    count, failing = sessions(capacity.safe_sessions), _lowest_failing(capacity)
    whole = f"Safe concurrency: {count} for {duration(capacity.session_length_s)}"
    if capacity.estimate is None:
        sentence = f"{whole} ({_evidence(point)})."
    else:
        fails = f"; {capacity.lowest_failing_sessions:,} fail" if failing is not None else ""
        sentence = f"{whole} (confirmed{_estimate(capacity)}){fails}. Confirmed by: {_evidence(point)}."
    if capacity.limited_by != "none":
        stage = f" (mostly {capacity.slowest_stage})" if capacity.slowest_stage else ""
        sentence += f" Limited by: {capacity.limited_by}{stage}."
    if failing is not None:
        return sentence + f" {_failing(failing)}{_open(capacity)}."
    if capacity.limited_by == "slots":
        return sentence + " More sessions were not tried."
    why = f": {capacity.inconclusive_reason}" if capacity.inconclusive_reason else ""
    return sentence + f" Whether more sessions hold is inconclusive{why}."


def _lowest_failing(capacity: Capacity) -> TrialResult | None:
    """The trial that shows the lowest failing number; None if none was seen to fail."""
    lowest = capacity.lowest_failing_sessions
    return next((p for p in capacity.trials if p.sessions == lowest and p.verdict == "fail"), None)


def _estimate(capacity: Capacity) -> str:
    """ "; estimate 66, 90 % interval 60 to 73"; empty without an estimate."""
    estimate = capacity.estimate
    if estimate is None:
        return ""
    return f"; estimate {estimate.sessions:,}, 90 % interval {estimate.low:,} to {estimate.high:,}"


def _undisturbed(capacity: Capacity) -> str:
    """What the machine would hold without what disturbed it; empty if nothing did."""
    calm = None if capacity.estimate is None else capacity.estimate.undisturbed
    if calm is None or calm.sessions == 0:  # no number was seen undisturbed, so nothing can be said
        return ""
    return f" Undisturbed: about {calm.sessions:,} ({calm.low:,} to {calm.high:,})."


def _open(capacity: Capacity) -> str:
    """Return the range between the safe and the failing number; empty if they are neighbours."""
    low, high = (capacity.safe_sessions or 0) + 1, (capacity.lowest_failing_sessions or 0) - 1
    if low > high:
        return ""
    return f"; {low} was not settled" if low == high else f"; {low} to {high} were not settled"


def _no_safe(capacity: Capacity, point: TrialResult) -> str:
    if capacity.lowest_failing_sessions == 1:
        why = f"{_why(point)}.{_early(capacity, point)}"
        return f"Fail: one session alone exceeds the objectives: {why} Limited by: {capacity.limited_by}."
    if capacity.method == "replay" and point.verdict == "fail":
        return f"{_single(capacity, point)} No smaller number of sessions in the load trace passed."
    why = f"{sessions(point.sessions)}: {_unsettled(point)}"
    if capacity.estimate is not None and capacity.inconclusive_reason:
        why = capacity.inconclusive_reason
    calm = _undisturbed(capacity)
    known = "" if calm else _estimate(capacity)
    return f"Inconclusive: no number of sessions was confirmed{known}; {why}.{calm}"


def _single(capacity: Capacity, point: TrialResult) -> str:
    count = sessions(point.sessions)
    length = duration(capacity.session_length_s)
    if point.verdict == "pass" and capacity.safe_sessions is not None:
        return f"Pass: {count} for {length} ({_evidence(point)})."
    if point.verdict == "fail":
        return f"Fail: {count} for {length}: {_why(point)}.{_early(capacity, point)} Limited by: {point.limited_by}."
    return f"Inconclusive: {count} for {length}: {_unsettled(point)}."


def _failing(point: TrialResult) -> str:
    """Return what failed, and in which kind of trial: most trials are shorter than a session."""
    seen = {"screen": " a screening trial", "memory": " the memory trial"}
    when = seen.get(point.purpose, f" within {format_seconds(point.duration_s)}")
    return f"{sessions(point.sessions)} failed{when} ({_why(point)})"


def _early(capacity: Capacity, point: TrialResult) -> str:
    """Say that a failing trial ended before the session length."""
    if point.duration_s >= capacity.session_length_s or point.ended_by == "interrupted":
        return ""
    return f" Ended early, after {format_seconds(point.duration_s)}."


def _unsettled(point: TrialResult) -> str:
    """Return why a trial is inconclusive. A trial that passed is so if a memory trial is missing."""
    return "passed, but without a memory trial" if point.verdict == "pass" else point.reason


def _evidence(point: TrialResult) -> str:
    parts = []
    for result in point.objectives:
        if result.unit == "ms" and result.measured is not None:
            sign = "<=" if "<=" in result.objective else "<"
            name, took = result.objective.split("<")[0], format_measured(result.measured, "ms")
            parts.append(f"{name} latency {took} {sign} {format_bound(result.limit, 'ms')}")
    parts.append(f"{_missed(point)}, 99 % confidence")
    text = ", ".join(parts)
    if point.occupancy_max is not None:
        text += f"; KV pool {percent(point.occupancy_max)} full"
    return text


def _missed(point: TrialResult) -> str:
    """Return the misses of all frames: "0 misses in 16,796 frames of 494 batches"."""
    misses = "1 miss" if point.misses == 1 else f"{point.misses:,} misses"
    return f"{misses} in {point.frames:,} frames of {point.batches:,} batches"


def _why(point: TrialResult) -> str:
    if point.ended_by in ("pool_full", "context_limit", "rejected"):
        return point.reason
    failed = [r for r in point.objectives if r.verdict == "fail"]
    shown = [f"{r.objective.split('<')[0]} {value_with_unit(r)}" for r in failed if r.measured is not None]
    return ", ".join(shown) or point.reason
