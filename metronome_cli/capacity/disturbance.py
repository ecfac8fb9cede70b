"""Seconds in which the machine was slow for a reason other than the number of sessions.

What: stretches of at least 0.5 s and 4 batches whose step took over 1.6 times what a batch of that size takes. A step
takes the time since the batch before it, or since its oldest frame was due. What a batch of a size takes is the lower
quartile over all trials, if it was seen in three stretches of 6 s or more. The queue of a burst makes batches of a size
that is seen in one or two stretches alone, so for those the line through the smaller sizes counts. Left out: slowdowns
by less than 1.6, which count as noise. Known error: where a batch is the frames of one period (a server), only trials
far below the limit can show a disturbance; above, load and disturbance look the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metronome_cli.capacity.samples import Samples

SLOW = math.log(1.6)  # over the time that a batch of this size takes
LEAST_S, LEAST_BATCHES = 0.5, 4
STRETCH_S, SPREAD = 6.0, 3  # a size seen in so many stretches was not seen by a burst alone
KNOWN = 8  # batches of a size, from which its time is known
BIN = 0.08  # in log batch size
FAR_BELOW = 0.4  # of the limit: typical latency at which load makes no batch of a period late


def disturbed(trials: Sequence[Samples], limit_ms: float, *, steps: bool) -> list[NDArray[np.bool_]]:
    """Which batches of each trial were disturbed. `steps`: a batch is an engine step, not the frames of a period."""
    bins = [np.floor(np.log(trial.frames) / BIN).astype(int) for trial in trials]
    busy = [np.log(trial.busy_ms) for trial in trials]
    expected = _expected(trials, bins, busy)
    found = []
    for trial, at, took in zip(trials, bins, busy, strict=True):
        if not steps and np.median(trial.median_ms) > FAR_BELOW * limit_ms:
            found.append(np.zeros(len(at), dtype=bool))
            continue
        usual = np.array([expected.get(int(b), np.nan) for b in at])
        excess = took - usual
        if not steps:  # a server far below its limit may be slower without harm
            excess = np.where(trial.worst_ms > limit_ms, excess, 0.0)
        found.append(_stretches(excess, trial.t_s - trial.t_s[0]))
    return found


def _expected(
    trials: Sequence[Samples], bins: Sequence[NDArray[np.int_]], busy: Sequence[NDArray[np.float64]]
) -> dict[int, float]:
    """Log ms that a batch takes, by bin of its size."""
    pooled, took = np.concatenate(bins), np.concatenate(busy)
    when = np.concatenate([np.floor((one.began_s + one.t_s) / STRETCH_S) for one in trials])
    expected: dict[int, float] = {}
    sizes: list[float] = []  # of the bins that were seen often enough, and ms
    times: list[float] = []
    for b in np.unique(pooled):
        inside = (pooled == b) & ~np.isnan(took)
        if inside.sum() < KNOWN:
            continue
        usual = float(np.exp(np.quantile(took[inside], 0.25)))
        size = math.exp((int(b) + 0.5) * BIN)
        if len(np.unique(when[inside])) >= SPREAD or not sizes:
            sizes.append(size)
            times.append(usual)
        else:
            usual = min(usual, _line(sizes, times, size))
        expected[int(b)] = math.log(usual)
    return expected


def _line(sizes: Sequence[float], times: Sequence[float], size: float) -> float:
    """ms of a larger batch: on the line through the largest size and half of it, or in proportion."""
    largest, most = sizes[-1], times[-1]
    i = int(np.searchsorted(sizes, largest / 2))
    if i >= len(sizes) - 1:
        return most * size / largest
    slope = max(0.0, most - times[i]) / (largest - sizes[i])
    return min(most + slope * (size - largest), most * size / largest)


def _stretches(excess: NDArray[np.float64], t_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Batches between the first and the last of enough slow ones in a row; those of unknown size do not end a row."""
    marked = np.zeros(len(excess), dtype=bool)
    known = np.flatnonzero(~np.isnan(excess))
    slow = excess[known] > SLOW
    edges = np.flatnonzero(np.diff(np.concatenate([[False], slow, [False]]).astype(int)))
    for first, end in edges.reshape(-1, 2):
        begin, last = known[first], known[end - 1]
        if end - first >= LEAST_BATCHES and t_s[last] - t_s[begin] >= min(LEAST_S, 0.7 * t_s[-1]):
            marked[begin : last + 1] = True
    return marked
