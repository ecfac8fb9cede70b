"""The plots of a report, in the order of the page."""

from __future__ import annotations

from metronome_cli.report.model import Report
from metronome_cli.report.plot_capacity import curve, stages
from metronome_cli.report.plot_forecast import forecast
from metronome_cli.report.plot_probe import against_age, against_sessions
from metronome_cli.report.plot_quality import perplexity_by_age, repetition_by_age
from metronome_cli.report.plot_surface import cost_surface
from metronome_cli.report.plot_timeline import arms, timelines
from metronome_cli.report.plotting import Plot


def plots(report: Report) -> list[Plot]:
    """Every plot that the report has data for."""
    found = [
        curve(report),
        *timelines(report),
        stages(report),
        arms(report),
        forecast(report),
        cost_surface(report),
        against_age(report),
        against_sessions(report),
        perplexity_by_age(report),
        repetition_by_age(report),
    ]
    return [plot for plot in found if plot is not None]
