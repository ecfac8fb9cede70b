"""The deadline of a report's frames."""

from __future__ import annotations

from metronome_cli.results.run_report import Report


def deadline_of(report: Report) -> float | None:
    """The profile's deadline in milliseconds; its period if it names none."""
    frame = (report.profile or {}).get("frame")
    if not isinstance(frame, dict):
        return None
    given = frame.get("deadline") or frame.get("period")
    return given * 1e3 if isinstance(given, int | float) else None
