"""Forecast of the fill time of a trial's KV pool, from its occupancy trace."""

from __future__ import annotations

from metronome_cli.core.quantities import format_duration
from metronome_cli.forecast.extrapolated import extrapolated
from metronome_cli.forecast.extrapolation import extrapolate
from metronome_cli.forecast.occupancy_trace import EARLY, OccupancyTrace
from metronome_cli.results.forecast_result import Forecast
from metronome_cli.results.run_report import Report

FEWEST_SAMPLES = 3
ENOUGH = 12  # samples to fit, where the first 30 % have fewer


def forecast_of(
    trace: OccupancyTrace | None, full_s: float | None, sessions: int, length_s: float, server: str
) -> Forecast | None:
    """Forecast of one trial. For a pool that filled, the forecast of the first 30 % of its fill.

    Times on the point's clock; `full_s` is when its pool was full. None where there are too few samples.
    """
    if trace is None or len(trace) < FEWEST_SAMPLES:
        return None
    fitted = trace if full_s is None else _early(trace)
    found = extrapolate(fitted)
    return extrapolated(
        found,
        fitted,
        source="scrape",
        sessions=sessions,
        session_length_s=length_s,
        observed_fill_time_s=full_s,
        sample_notes=list(trace.notes),
        assumptions=[
            "the same sessions go on as they did in the fitted part",
            "nothing bounds the cache later on",
        ],
        details={"server": server, "samples": len(trace), "samples_fitted": len(fitted)},
    )


def _early(rise: OccupancyTrace) -> OccupancyTrace:
    return rise.first(min(1.0, max(EARLY, ENOUGH / len(rise)))) if len(rise) else rise


def with_forecast(report: Report, forecast: Forecast | None, whose: str) -> Report:
    """Return the report with the forecast of the pool named by `whose`."""
    if forecast is not None:
        report.forecast = forecast
        report.summary = f"{report.summary} {_in_words(forecast, whose)}".rstrip()
    return report


def _in_words(forecast: Forecast, whose: str) -> str:
    """A sentence for the answer; empty where the pool is not on its way to be full."""
    t_sat, seen_s = forecast.fill_time_s.estimate, forecast.observed_fill_time_s
    who = f"with {forecast.sessions} session{'' if forecast.sessions == 1 else 's'}"
    if seen_s is not None:
        after = f"after {_short(forecast.fitted_until_s or 0.0)}"
        told = "" if t_sat is None else f"; forecast {after} for {_short(t_sat)}"
        return f"{whose} KV pool {who} was full at {_short(seen_s)}{told}."
    if t_sat is None:
        return ""
    return f"{whose} KV pool {who} will be full at {_short(t_sat)} if they go on."


def _short(seconds: float) -> str:
    return format_duration(round(seconds, 1) if seconds < 100 else round(seconds))
