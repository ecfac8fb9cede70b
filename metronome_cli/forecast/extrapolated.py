"""A report's forecast from an extrapolated trace: what is the same whether it was recorded or scraped."""

from __future__ import annotations

from typing import Any

from metronome_cli.forecast.extrapolation import Extrapolation
from metronome_cli.forecast.occupancy_trace import OccupancyTrace
from metronome_cli.results.forecast_result import Forecast, Interval


def extrapolated(found: Extrapolation, fitted: OccupancyTrace, **further: Any) -> Forecast:
    """`found` from the samples of `fitted`; `further`: fields that only the trace's source knows."""
    return Forecast(
        fill_time_s=Interval(estimate=found.t_sat_s, low=found.low_s, high=found.high_s),
        collapse_probability=None,
        limited_by="pool" if found.saturates else "none",
        max_sessions=None,
        fitting_window_tokens=None,
        fills=found.saturates,
        reason=found.reason,
        occupancy=float(fitted.occupancy[-1]) if len(fitted) else None,
        fill_rate_per_s=found.rate_per_s,
        fill_rate_falling=found.falling,
        fitted_until_s=float(fitted.t_s[-1]) if len(fitted) else None,
        **further,
    )
