"""Plots of a probe: what a step costs by the age of its sessions, and by their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from metronome_cli.core.formatting import duration, plural
from metronome_cli.report.html.deadline import deadline_of
from metronome_cli.report.html.plotting import (
    Plot,
    deadline_line,
    latency_axis,
    legend,
    make_plot,
    short,
    time_axis,
)
from metronome_cli.report.html.svg import SERIES, STAND_IN
from metronome_cli.results.latency_result import GridCellResult
from metronome_cli.results.run_report import Report

Cell = tuple[float, float]  # age in seconds or number of sessions; median step in milliseconds


def against_age(report: Report) -> Plot | None:
    """Step time by session age, at the largest batch that every policy was measured at."""
    cells = _measured(report)
    batches = [{cell.sessions for cell in cells if cell.policy == policy} for policy in _policies(cells)]
    shared = set.intersection(*batches) if batches else set()
    if not shared:
        return None
    largest = max(shared)
    lines = _lines(cells, lambda cell: (cell.age_s, cell.median_ms or 0.0), lambda c: c.sessions == largest)
    if max(map(len, lines.values())) < 2:
        return None

    def paint(axes: Sequence[Axes]) -> None:
        _paint_lines(axes[0], lines, report)
        time_axis(axes[0], max(age for line in lines.values() for age, _ in line))
        axes[0].set_xlabel(axes[0].get_xlabel().replace("time on the run's clock", "age of the sessions"))

    caption = f"Median time of a step with {plural(largest, 'session')} of one age, for each policy."
    return make_plot("Step time against session age", caption, paint, [1.0], "age")


def against_sessions(report: Report) -> Plot | None:
    """Step time by batch size, at each policy's oldest age that has several."""
    cells = _measured(report)
    ages = [{cell.age_s for cell in cells if cell.policy == policy} for policy in _policies(cells)]
    shared = set.intersection(*ages) if ages else set()
    if not shared:
        return None
    oldest = max(shared)
    lines = _lines(cells, lambda cell: (cell.sessions, cell.median_ms or 0.0), lambda c: c.age_s == oldest)
    if max(map(len, lines.values())) < 2:
        return None

    def paint(axes: Sequence[Axes]) -> None:
        _paint_lines(axes[0], lines, report)
        axes[0].set_xlim(left=0)
        axes[0].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes[0].set_xlabel("sessions in the step")

    caption = f"Median time of a step whose sessions are all {duration(oldest)} old, for each policy."
    return make_plot("Step time against sessions", caption, paint, [1.0], "batch")


def _measured(report: Report) -> list[GridCellResult]:
    return [cell for cell in (report.probe.cells if report.probe else []) if cell.median_ms is not None]


def _policies(cells: Sequence[GridCellResult]) -> list[str]:
    return list(dict.fromkeys(cell.policy for cell in cells))[: len(SERIES)]


def _lines(
    cells: Sequence[GridCellResult],
    place: Callable[[GridCellResult], Cell],
    wanted: Callable[[GridCellResult], bool],
) -> dict[str, list[Cell]]:
    return {
        policy: sorted(place(cell) for cell in cells if cell.policy == policy and wanted(cell))
        for policy in _policies(cells)
    }


def _paint_lines(panel: Axes, lines: dict[str, list[Cell]], report: Report) -> None:
    for index, (policy, line) in enumerate(lines.items()):
        places, values = [place for place, _ in line], [value for _, value in line]
        panel.plot(places, values, marker="o", color=STAND_IN[SERIES[index]], label=short(policy))
    highest = max(value for line in lines.values() for _, value in line)
    deadline_ms = deadline_of(report)
    if deadline_ms is not None and highest > 0.2 * deadline_ms:
        deadline_line(panel, deadline_ms)
    else:
        deadline_ms = None
    latency_axis(panel, [highest], deadline_ms)
    panel.set_ylabel("median step, ms")
    legend(panel)
