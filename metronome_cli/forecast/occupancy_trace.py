"""A recorded or scraped series of (time, occupancy), made fit for extrapolation, with everything odd about it
said.

Time is in seconds and rises; occupancy is the used share of the pool, 0..1. A missing or non-finite
occupancy is a gap; a missing or non-finite time, or time that goes back, is an error, because the order of
things is then a guess. A fall of more than `DROP` within `FALL_S` means that the server restarted or that sessions
left: what came before does not tell the occupancy of now, and only the last rise is kept. A fall at the end of a
recording is the end of its run, and what precedes it is kept. A full pool ends the rise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.speaking_time import Reals

DROP = 0.03  # of the pool, between neighbouring samples or within FALL_S
FALL_S = 2.0
MOST_LAGS = 50  # samples that a fall is looked for in
END_SHARE = 0.1  # of a recording's time: a fall so late is its end
FULL = 0.995  # a pool counts as full from here on: the last blocks fit no session's next frame
GAP = 5.0  # median spacings
EARLY = 0.3  # of the time to a full pool, where the trace reaches one
SLACK = 1e-6  # by which a share may leave 0..1, for its rounding


@dataclass(frozen=True, slots=True)
class OccupancyTrace:
    """Samples in order of time: `t_s` [n] seconds, `occupancy` [n] of 0..1; `notes`: what was left out."""

    t_s: Reals
    occupancy: Reals
    notes: tuple[str, ...] = ()
    whole: OccupancyTrace | None = None  # all samples, of which these are the last rise

    def __len__(self) -> int:
        return len(self.t_s)

    @property
    def span_s(self) -> float:
        return float(self.t_s[-1] - self.t_s[0]) if len(self) else 0.0

    @property
    def spacing_s(self) -> float:
        """Median time between samples."""
        return float(np.median(np.diff(self.t_s))) if len(self) > 1 else 0.0

    @property
    def full_at_s(self) -> float | None:
        """The first sample with a full pool."""
        full = np.flatnonzero(self.occupancy >= FULL)
        return float(self.t_s[full[0]]) if len(full) else None

    def until(self, t_s: float) -> OccupancyTrace:
        """The samples up to that instant."""
        kept = self.t_s <= t_s
        return replace(self, t_s=self.t_s[kept], occupancy=self.occupancy[kept])

    def first(self, share: float) -> OccupancyTrace:
        """The first `share` of its time."""
        return self.until(float(self.t_s[0]) + share * self.span_s) if len(self) else self

    def rise(self) -> OccupancyTrace:
        """Up to the instant at which it is full."""
        return self if self.full_at_s is None else self.until(self.full_at_s)

    def rise_around(self, t_s: float) -> OccupancyTrace:
        """The rise that contains an instant, also one that was followed by a fall and another rise."""
        whole = self if self.whole is None else self.whole
        begun = after_last_drop(whole.until(t_s), live=True)
        if not len(begun):
            return begun
        rest = whole.t_s >= begun.t_s[0]
        rise = OccupancyTrace(whole.t_s[rest], whole.occupancy[rest], begun.notes)
        falls = _falls(rise)
        end = falls[0][0] if falls else len(rise)
        return replace(rise, t_s=rise.t_s[:end], occupancy=rise.occupancy[:end])

    def early(self) -> OccupancyTrace:
        """What a forecast is made from: the first part of a trace that fills, all of one that does not."""
        return self if self.full_at_s is None else self.rise().first(EARLY)


def clean_trace(
    samples: Iterable[tuple[float | None, float | None]], where: str = "trace", *, live: bool = False
) -> OccupancyTrace:
    """Check and clean (time in s, occupancy) pairs. Raises UsageError naming the sample that cannot serve."""
    rows = list(samples)
    notes: list[str] = []
    times = [_time(row, number, where) for number, (row, _) in enumerate(rows, 1)]
    _check_order(times, where)
    values = [math.nan if value is None else float(value) for _, value in rows]
    missing = sum(not math.isfinite(value) for value in values)
    if missing:
        notes.append(f"without a finite occupancy, and left out: {missing} of {len(rows)} samples")
    kept = {time: value for time, value in zip(times, values, strict=True) if math.isfinite(value)}
    if len(kept) + missing < len(rows):
        notes.append(
            f"share their instant with a later sample, and are left out: {len(rows) - missing - len(kept)}"
        )
    _check_range(kept, where)
    trace = OccupancyTrace(
        np.array(list(kept), dtype=np.float64), np.array(list(kept.values()), dtype=np.float64)
    )
    whole = replace(trace, notes=tuple(notes + _gaps(trace)))
    return replace(after_last_drop(whole, live=live), whole=whole)


def after_last_drop(trace: OccupancyTrace, *, live: bool = False) -> OccupancyTrace:
    """The last rise, with a note if anything was left out.

    A fall may take up to `FALL_S`, since sessions leave one after the other. A recording may end with one: the
    run is over, its sessions leave, and what precedes them is the trend. A `live` trace continues after it.
    """
    falls = _falls(trace)
    if not len(falls):
        return trace
    if not live and float(trace.t_s[-1] - trace.t_s[falls[-1][0]]) < END_SHARE * trace.span_s:
        first = falls[-1][0]
        before = OccupancyTrace(trace.t_s[:first], trace.occupancy[:first], trace.notes)
        note = f"occupancy fell at the end, from {trace.t_s[first]:.1f} s on (sessions left); earlier samples count"
        return after_last_drop(replace(before, notes=(*trace.notes, note)), live=True)
    first, end = falls[-1]
    last = first + int(np.argmin(trace.occupancy[first:end]))
    high, low, at = trace.occupancy[first - 1], trace.occupancy[last], trace.t_s[first]
    note = (
        f"occupancy fell from {high:.3f} to {low:.3f} at {at:.1f} s (restart, or sessions left); "
        "only later samples count"
    )
    return OccupancyTrace(trace.t_s[last:], trace.occupancy[last:], (*trace.notes, note))


def _falls(trace: OccupancyTrace) -> list[tuple[int, int]]:
    """Runs of samples, as (first, end), that lie more than `DROP` below one of the `FALL_S` before."""
    level, highest = trace.occupancy, trace.occupancy.copy()
    lags = max(1, min(MOST_LAGS, math.ceil(FALL_S / trace.spacing_s))) if trace.spacing_s > 0 else 1
    for lag in range(1, lags + 1):
        highest[lag:] = np.maximum(highest[lag:], level[:-lag])
    low = np.flatnonzero(level < highest - DROP)
    if not len(low):
        return []
    starts = np.flatnonzero(np.diff(low, prepend=-2) > 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(low, starts[1:])]


def _time(value: float | None, number: int, where: str) -> float:
    if value is None or not math.isfinite(value):
        raise UsageError(
            f"{where}: sample {number} has no finite time", hint="every sample needs a time in seconds"
        )
    return float(value)


def _check_order(times: Sequence[float], where: str) -> None:
    for number, (before, after) in enumerate(pairwise(times), 2):
        if after < before:
            raise UsageError(
                f"{where}: time goes back at sample {number}, from {before:g} to {after:g} s",
                hint="sort the samples by time, or keep one run only",
            )


def _check_range(kept: dict[float, float], where: str) -> None:
    for time, value in kept.items():
        if not -SLACK <= value <= 1 + SLACK:
            raise UsageError(
                f"{where}: occupancy {value:g} at {time:g} s lies outside 0..1",
                hint="give the used share of the pool, 0..1; name a column in percent 'occupancy_percent'",
            )


def _gaps(trace: OccupancyTrace) -> list[str]:
    if len(trace) < 3:
        return []
    steps = np.diff(trace.t_s)
    wide = np.flatnonzero(steps > GAP * trace.spacing_s)
    return [f"no samples from {trace.t_s[i]:.1f} to {trace.t_s[i + 1]:.1f} s" for i in wide[:5]] + (
        [f"and {len(wide) - 5} more gaps"] if len(wide) > 5 else []
    )
