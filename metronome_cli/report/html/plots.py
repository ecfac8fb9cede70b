"""The plots of a report, in the order of the page."""

from __future__ import annotations

from metronome_cli.report.html.capacity_plots import curve, late_shares, stages
from metronome_cli.report.html.cost_surface_plot import cost_surface
from metronome_cli.report.html.forecast_plot import fleet, forecast, pool_fill
from metronome_cli.report.html.latency_plots import against_age, against_sessions
from metronome_cli.report.html.playback_plot import playback
from metronome_cli.report.html.plotting import Plot
from metronome_cli.report.html.quality_plots import perplexity_by_age, repetition_by_age
from metronome_cli.report.html.timeline_plots import policy_runs, timelines
from metronome_cli.results.run_report import Report


def plots(report: Report) -> list[Plot]:
    """Every plot that the report has data for."""
    found = [
        late_shares(report),
        curve(report),
        playback(report),
        *timelines(report),
        stages(report),
        policy_runs(report),
        pool_fill(report),
        forecast(report),
        fleet(report),
        cost_surface(report),
        against_age(report),
        against_sessions(report),
        perplexity_by_age(report),
        repetition_by_age(report),
    ]
    return [plot for plot in found if plot is not None]
