"""A report as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metronome_cli.results.run_report import Report


def render(report: Report) -> str:
    """Return the page. Plots are imported on the first call, which takes about a second."""
    from metronome_cli.report.html.page import render_html

    return render_html(report)
