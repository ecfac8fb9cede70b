"""`predict` from a recorded trace: fitted on its early part only, and checked against the rest where there is one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from metronome_cli.commands.predict.report_trials import listed
from metronome_cli.commands.predict.trace_files import RecordedOccupancy, read_recording
from metronome_cli.core.errors import UsageError, Verdict
from metronome_cli.core.formatting import percent
from metronome_cli.core.quantities import format_duration
from metronome_cli.forecast.extrapolated import extrapolated
from metronome_cli.forecast.extrapolation import Extrapolation, extrapolate, probability_by
from metronome_cli.forecast.occupancy_trace import OccupancyTrace
from metronome_cli.results.forecast_result import Forecast
from metronome_cli.results.report_draft import ReportDraft, format_interval
from metronome_cli.results.run_report import Report

ASSUMPTIONS = (
    "the cache is not bounded later (a window that is not full yet looks like growth)",
    "the sessions continue as in the fitted part",
    "noise adds up like a random walk; interval by Student's t with 6 degrees of freedom",
)


@dataclass(frozen=True, slots=True)
class TracePlan:
    """Which file, which run in it, and how much of it is fitted: `fit_until_s` in the trace's time, or
    `fit_share`.
    """

    path: Path
    run: str | None = None
    time_column: str | None = None
    occupancy_column: str | None = None
    fit_share: float | None = None
    fit_until_s: float | None = None
    session_length_s: float | None = None
    fail_within_s: float | None = None
    fail_probability: float = 0.05
    argv: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


def predict_trace(plan: TracePlan) -> Report:
    """Forecast it. Raises UsageError for a file or a quantity that cannot be used."""
    draft = ReportDraft(plan.argv, plan.settings)
    recording = read_recording(
        plan.path, run=plan.run, time=plan.time_column, occupancy=plan.occupancy_column
    )
    if plan.fit_until_s is not None:
        recording = replace(recording, trace=recording.trace.rise_around(plan.fit_until_s))
    fitted = early_part(recording.trace, plan.fit_share, plan.fit_until_s)
    found = extrapolate(fitted)
    forecast = _forecast(plan, recording, fitted, found)
    return draft.report(
        _sentence(forecast, recording), verdict=_verdict(plan, fitted, found), forecast=forecast
    )


def early_part(
    trace: OccupancyTrace, share: float | None = None, until_s: float | None = None
) -> OccupancyTrace:
    """What is fitted: as told, else the first 30 % of a trace that fills, else all of it."""
    if share is not None and until_s is not None:
        raise UsageError("--fit-share and --fit-until contradict each other", hint="give one of them")
    if share is not None and not 0 < share <= 1:
        raise UsageError(f"a share of {share:g} fits nothing", hint="above 0, at most 1")
    rise = trace.rise()
    if until_s is not None:
        return rise.until(until_s)
    if share is not None:
        return rise.first(share)
    return trace.early()


def _forecast(
    plan: TracePlan, recording: RecordedOccupancy, fitted: OccupancyTrace, found: Extrapolation
) -> Forecast:
    end_s = float(fitted.t_s[-1]) if len(fitted) else None
    return extrapolated(
        found,
        fitted,
        source="trace",
        session_length_s=plan.session_length_s,
        served_share=None if end_s is None else recording.served_share(end_s),
        remaining_s=None if end_s is None or found.t_sat_s is None else max(0.0, found.t_sat_s - end_s),
        observed_fill_time_s=recording.trace.full_at_s,
        sample_notes=list(recording.trace.notes),
        assumptions=[*_read(recording), *ASSUMPTIONS],
        details={"samples": len(recording.trace), "samples_fitted": len(fitted)},
    )


def _read(recording: RecordedOccupancy) -> list[str]:
    """Which run was read, and which others the file holds."""
    beside = [f"other runs in it, for --trial: {listed(recording.others)}"] if recording.others else []
    return [f"run: {recording.name}", *beside]


def _verdict(plan: TracePlan, fitted: OccupancyTrace, found: Extrapolation) -> Verdict | None:
    if plan.fail_within_s is None:
        return None
    now_s = float(fitted.t_s[-1]) if len(fitted) else 0.0
    return verdict_within(found, now_s, plan.fail_within_s, plan.fail_probability)


def verdict_within(found: Extrapolation, now_s: float, within_s: float, probability: float) -> Verdict:
    """Fail if the pool is full within that time from now with at least `probability`; inconclusive without samples."""
    if found.saturates is None:
        return "inconclusive"
    return "fail" if probability_by(found, now_s + within_s) >= probability else "pass"


def _sentence(forecast: Forecast, recording: RecordedOccupancy) -> str:
    t = forecast.fill_time_s
    seen_s, fitted_s = forecast.observed_fill_time_s, forecast.fitted_until_s
    if seen_s is not None and fitted_s is not None and fitted_s >= seen_s:
        text = (
            f"The pool is full at {seen_s:.4g} s, in the part to be fitted, so nothing is left to forecast."
        )
        seen_s = fitted_s = None
    elif forecast.fills is None:
        text = f"Not enough samples for a forecast: {forecast.reason}."
    elif t.estimate is None:
        text = f"Does not saturate: {forecast.reason}."
    else:
        text = f"The pool is full at {format_interval(t)}: {forecast.reason}."
    if fitted_s is not None:
        text += f" Fitted up to {fitted_s:.4g} s."
    if seen_s is not None:
        off = "" if t.estimate is None else f", {100 * (t.estimate / seen_s - 1):+.1f} % off"
        text += f" The trace itself is full at {seen_s:.4g} s{off}."
    if forecast.served_share is not None and forecast.served_share < 0.99:
        text += f" Only {percent(forecast.served_share)} of the frames offered were served."
    if forecast.session_length_s is not None and t.estimate is not None:
        sooner = t.estimate < forecast.session_length_s
        text += f" That is {'before' if sooner else 'after'} {format_duration(forecast.session_length_s)}."
    if recording.others:
        text += f" Read: {recording.name}, of {len(recording.others) + 1} runs in it (--trial)."
    return text
