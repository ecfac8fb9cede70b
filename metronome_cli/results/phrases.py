"""Figures of a report in words, the same in a run's summary and in every format of its report."""

from __future__ import annotations

from metronome_cli.core.formatting import format_measured
from metronome_cli.results.measured import ObjectiveResult
from metronome_cli.results.run_report import Report

BUSY_CORES = 0.3  # mean load by other processes from which a step is delayed now and then, cores


def other_load(report: Report) -> str | None:
    """Return how many cores other processes used, or None if too few to disturb the timing."""
    busy, cores = report.environment.get("busy_cores"), report.environment.get("cores")
    if not isinstance(busy, int | float) or not isinstance(cores, int | float) or busy < BUSY_CORES:
        return None
    return f"other work used {busy:.1f} of {cores:g} cores"


def value_with_unit(result: ObjectiveResult) -> str:
    """Return the value measured for an objective: "7.1 ms", "61 % of frames"."""
    value = format_measured(result.measured, result.unit)
    is_share = result.objective.startswith(("misses", "empty")) and result.measured is not None
    return f"{value} of frames" if is_share else value
