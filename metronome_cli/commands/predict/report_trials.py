"""The trials in a report of this project, and which of them is used if none is named.

A report has many: the trials of a search, its ramp, the policy runs of a comparison. Screening trials only show
where to confirm. The preferred trial is, in this order: judged, not screening; with enough samples for a fit; the
deciding trial of the report; the one with the highest occupancy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from metronome_cli.core.errors import UsageError
from metronome_cli.core.formatting import plural
from metronome_cli.forecast.extrapolation import FEWEST
from metronome_cli.forecast.occupancy_trace import OccupancyTrace, clean_trace
from metronome_cli.report.event_replay import confirmed
from metronome_cli.results.capacity_result import Capacity, TrialResult
from metronome_cli.results.measured import OccupancySeries, Window
from metronome_cli.results.run_report import Report

LOOKS = ("screen", "ramp")
CHECKS = ("memory",)  # of what fits, after a point was confirmed
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class ReportTrial:
    """One of them. `decisive`: the answer rests on it."""

    name: str
    timeline: Sequence[Window]
    period_s: float  # NaN where the report does not say
    look: bool = False
    decisive: bool = False
    fine: OccupancySeries | None = None  # None: the windows are all there is

    @property
    def told(self) -> bool:
        """Whether its occupancy is known."""
        return any(window.occupancy is not None for window in self.timeline)

    def trace(self, file: Path) -> OccupancyTrace:
        """Its occupancy. Raises UsageError naming `file` for samples that cannot be."""
        where = f"{file} ({self.name})"
        if self.fine is not None:
            return clean_trace(list(zip(self.fine.t_s, self.fine.occupancy, strict=False)), where)
        return clean_trace([(window.t_s, window.occupancy) for window in self.timeline], where)

    def rank(self, file: Path) -> tuple[bool, bool, bool, float]:
        """The larger one counts."""
        fullest = max(window.occupancy or 0.0 for window in self.timeline)
        return not self.look, len(self.trace(file).early()) >= FEWEST, self.decisive, fullest


def runs_in(report: Report) -> list[ReportTrial]:
    """Those with any occupancy, in the order in which they were measured, each under a name of its own."""
    found = [
        *_of_search(report),
        *(ReportTrial(run.name, run.windows, _period_s(report)) for run in report.policy_runs),
    ]
    return list(_named_apart(run for run in found if run.told))


def choose(runs: Sequence[ReportTrial], wanted: str | None, file: Path) -> tuple[ReportTrial, list[str]]:
    """The run that counts, of those that `wanted` names if any, and the names of all others. Raises UsageError."""
    told = (wanted or "").lower()
    begun = [run for run in runs if run.name.lower().startswith(told)]
    matching = begun or [run for run in runs if told in run.name.lower()]
    if not matching:
        called = f" called {wanted!r}" if wanted else ""
        raise UsageError(
            f"{file}: no run to read{called}", hint=f"runs: {listed([run.name for run in runs])}"
        )
    chosen = max(matching, key=lambda run: run.rank(file))
    return chosen, [run.name for run in runs if run is not chosen]


def listed(names: Sequence[str]) -> str:
    """ "'8 sessions, single, fail'; 'ramp'"; the first few of many."""
    more = len(names) - MOST_NAMED
    shown = "; ".join(map(repr, names[:MOST_NAMED])) or "none with occupancy"
    return f"{shown}; and {more} more" if more > 0 else shown


def _of_search(report: Report) -> Iterable[ReportTrial]:
    capacity, period_s = report.capacity, _period_s(report)
    if capacity is None:
        return
    if capacity.ramp_windows:
        yield ReportTrial("ramp", capacity.ramp_windows, period_s, look=True)
    decisive = _decisive(capacity)
    for point in capacity.trials:
        name = f"{plural(point.sessions, 'session')}, {point.purpose or 'point'}, {point.verdict}"
        yield ReportTrial(
            name, point.windows, period_s, point.purpose in LOOKS, point is decisive, point.occupancy
        )


def _decisive(capacity: Capacity) -> TrialResult | None:
    """What confirmed the safe number; where none was, the smallest that was judged and failed."""
    safe = confirmed(capacity.trials) if capacity.safe_sessions is None else capacity.safe_sessions
    judged = [point for point in capacity.trials if point.purpose not in (*LOOKS, *CHECKS)]
    held = [point for point in judged if (point.sessions, point.verdict) == (safe, "pass")]
    failed = [point for point in judged if point.verdict == "fail"]
    return held[0] if held else min(failed, key=lambda point: point.sessions, default=None)


def _named_apart(runs: Iterable[ReportTrial]) -> Iterable[ReportTrial]:
    seen = Counter[str]()
    for run in runs:
        seen[run.name] += 1
        nth = seen[run.name]
        name = run.name if nth == 1 else f"{run.name} ({nth})"
        yield ReportTrial(name, run.timeline, run.period_s, run.look, run.decisive, run.fine)


def _period_s(report: Report) -> float:
    frame = report.profile.get("frame") if report.profile else None
    period = frame.get("period") if isinstance(frame, dict) else None
    return float(period) if isinstance(period, int | float) else math.nan
