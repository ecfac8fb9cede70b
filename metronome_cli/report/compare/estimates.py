"""Compares estimates of N*, each of which has an interval of its own.

An estimate with a 90 % interval from low to high has a standard deviation of about (high - low) / 3.29. The 95 %
interval of a change is 1.96 standard deviations of the difference on either side of it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from metronome_cli.core.formatting import plural
from metronome_cli.results.capacity_estimate import CapacityEstimate
from metronome_cli.results.run_report import Report

ROUNDING = 1 / math.sqrt(12)  # standard deviation of a number that is rounded


def estimates(reports: Sequence[Report]) -> list[CapacityEstimate]:
    """Those of the reports that have one."""
    return [
        r.capacity.estimate for r in reports if r.capacity is not None and r.capacity.estimate is not None
    ]


def change_interval(base: Sequence[Report], new: Sequence[Report]) -> tuple[float, float] | None:
    """95 % interval of the change of N*; None without an estimate on either side."""
    before, after = estimates(base), estimates(new)
    if not before or not after:
        return None
    change = statistics.fmean(e.sessions for e in after) - statistics.fmean(e.sessions for e in before)
    error = 1.96 * math.hypot(_error(before), _error(after))
    return change - error, change + error


def _error(side: Sequence[CapacityEstimate]) -> float:
    """Standard error of the mean of one side."""
    each = [max(ROUNDING, (one.high - one.low) / 3.29) for one in side]
    return math.hypot(*each) / len(each)


def told(base: Sequence[Report], new: Sequence[Report]) -> str | None:
    """What became of N*, in one sentence; None without an estimate on either side."""
    interval = change_interval(base, new)
    if interval is None:
        return None
    before, after = (statistics.fmean(e.sessions for e in estimates(side)) for side in (base, new))
    low, high = interval
    if low <= 0 <= high:
        more = "" if round(before) == round(after) else f" to {after:,.0f}"
        return f"N* went from {before:,.0f}{more}: the intervals allow for no change ({low:+.0f} to {high:+.0f})."
    went = "fell" if after < before else "rose"
    least = min(abs(low), abs(high))
    return f"N* {went} from {before:,.0f} to {after:,.0f}, surely: by at least {plural(math.floor(least), 'session')}."
