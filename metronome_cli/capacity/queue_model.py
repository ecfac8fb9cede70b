"""The share of late frames at any number of sessions, by replaying measured step times through a queue.

What: an engine that steps whenever a frame is due serves, in each step, all frames that became due during the step
before. So the time that a step of b frames takes, and how single steps differ from it, say what any number of sessions
would meet, knees and slow spirals included. From: the step times of all trials (disturbance.py), their median by batch
size, made to grow with it; their ratios to that median are replayed in stretches, which keeps runs of slow steps
together. Ratios above 1.5 are a mixture of ratio and excess, drawn anew for each draw, since load scales the first and
interference the second. Left out: that a cache grows, and all that changes with N but not with the batch.
Known error: a batch size that no trial saw is extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from metronome_cli.capacity.samples import Samples

Floats = NDArray[np.float64]

STEPS = 1000  # that each lane replays
LANES = 4  # of each draw
STRETCH = 25  # steps that are replayed together
COARSE, FINE = 16, 20  # numbers of sessions that are simulated: over all, and where the share rises
RISE = (0.1, 20.0)  # times the allowed share: where it is simulated finely
OUTLIER = 1.5
LONG = 40  # steps of a trial that tells how its engine differs
ENGINES = (0.015, 0.05)  # least and largest standard deviation of log step time between engines
LEVEL = 0.015  # least standard error of the log step time: what changes more slowly than a search
BEYOND = 0.25  # standard deviation of the log cost of a batch e times as large as any that was seen


@dataclass(frozen=True, slots=True)
class Stepping:
    """An engine that steps whenever a frame is due: a frame per session and period, at most so many in a step."""

    period_ms: float
    max_batch: int


class StepTimes:
    """Step times of some trials: the median by batch size, and the ratios to it in order."""

    def __init__(self, trials: Sequence[Samples]) -> None:
        seen = [one for one in trials if len(one) > 1]
        sizes = np.concatenate([one.frames[1:] for one in seen])
        busy = np.concatenate([one.busy_ms[1:] for one in seen])
        levels, at = np.unique(sizes, return_inverse=True)
        counts = np.bincount(at)
        medians = np.array([np.median(busy[at == i]) for i in range(len(levels))])
        self.sizes = levels
        self.ms = np.exp(isotonic_regression(np.log(medians), weights=counts).x)
        usual = self.at(sizes)
        self.ratios = np.minimum(busy / usual, OUTLIER)
        self.excess_ms = np.maximum(0.0, busy - OUTLIER * usual)
        self.excess_ratios = self.excess_ms / usual
        self.lengths = np.array([max(0, len(one) - 1) for one in trials])

    @property
    def uncertainty(self) -> float:
        """Standard error of the log of the typical ratio, from how the trials that are long enough differ."""
        ends = np.cumsum(self.lengths)
        parts = [self.ratios[end - n : end] for end, n in zip(ends, self.lengths, strict=True) if n >= LONG]
        levels = np.log([np.median(part) for part in parts])
        spread = float(np.clip(np.std(levels), *ENGINES)) if len(levels) > 1 else ENGINES[1]
        return max(LEVEL, spread / math.sqrt(max(1, len(levels))))

    def at(self, sizes: Floats) -> Floats:
        """ms of a step of so many frames; beyond the largest seen with the slope from half of it on."""
        largest = self.sizes[-1]
        half = np.interp(largest / 2, self.sizes, self.ms)
        slope = max(0.0, self.ms[-1] - half) / (largest - largest / 2)
        found: Floats = np.interp(sizes, self.sizes, self.ms) + slope * np.maximum(0.0, sizes - largest)
        return found

    def stepped(self, sizes: Floats, at: Floats) -> Floats:
        """The same for each draw, with a step at the share `at` of each gap between sizes that were seen, [draw, size].

        A kernel of a larger size takes its full time from the first frame on.
        """
        left = np.clip(np.searchsorted(self.sizes, sizes, side="right") - 1, 0, len(self.sizes) - 1)
        right = np.minimum(left + 1, len(self.sizes) - 1)
        gap = np.maximum(1e-9, self.sizes[right] - self.sizes[left])
        beyond = np.clip((sizes - self.sizes[left]) / gap, 0, 1) > at
        found: Floats = np.where(beyond, self.ms[right], self.ms[left])
        return np.where(sizes > self.sizes[-1], self.at(sizes), found)


class QueueModel:
    """Shares of late frames by draw and number of sessions. `weights`: of each trial in each draw, [draw, trial]."""

    def __init__(
        self,
        trials: Sequence[Samples],
        weights: Floats,
        stepping: Stepping,
        ceiling: int,
        rng: np.random.Generator,
    ) -> None:
        self.times, self.rng = StepTimes(trials), rng
        self.period_ms, self.max_batch = stepping.period_ms, stepping.max_batch
        self._weights, self._ceiling = weights, ceiling
        draws = len(weights)
        self._level = np.exp(self.times.uncertainty * rng.normal(size=(draws, 1)))
        self._beyond = BEYOND * rng.normal(size=(draws, 1))
        self._gaps = rng.uniform(
            0, 1, (draws, 1)
        )  # below 0.5: twice of it is where in a gap the time steps up
        self._mixture = rng.uniform(0, 1, (draws, 1))
        self._picks = self._replay()  # [step, draw, lane]

    def shares(self, limits_ms: Sequence[float], allowed: float, grid: NDArray[np.int_]) -> list[Floats]:
        """For each limit, [draw, N of the grid]."""
        coarse = np.unique(np.round(np.geomspace(1, self._ceiling, COARSE)).astype(int))
        found = self._simulate(coarse, limits_ms[:1])[0].mean(axis=0)
        low = coarse[found <= RISE[0] * allowed].max(initial=1)
        high = coarse[found >= RISE[1] * allowed].min(initial=self._ceiling)
        fine = np.unique(np.round(np.geomspace(max(1, low), max(low + 1, high), FINE)).astype(int))
        numbers = np.unique(np.concatenate([[1], fine, [self._ceiling]]))
        shares = self._simulate(numbers, limits_ms)
        return [
            np.array([np.interp(np.log(grid), np.log(numbers), _rising(row)) for row in one])
            for one in shares
        ]

    def _replay(self) -> NDArray[np.int_]:
        """Which step's ratio to replay, [step, draw, lane]: stretches of trials, by weight and length."""
        draws, (first, lengths) = len(self._weights), (np.cumsum(self.times.lengths), self.times.lengths)
        first = first - lengths
        stretches = math.ceil(STEPS / STRETCH)
        chances = np.cumsum(self._weights * lengths, axis=1)
        picks = self.rng.uniform(size=(draws, stretches * LANES)) * chances[:, -1:]
        trial = np.array([np.searchsorted(row, pick) for row, pick in zip(chances, picks, strict=True)])
        start = (self.rng.uniform(size=trial.shape) * lengths[trial]).astype(int)
        within = (start[..., None] + np.arange(STRETCH)) % lengths[trial][..., None]
        picks = first[trial][..., None] + within  # [draw, stretch * lane, step]
        found: NDArray[np.int_] = picks.reshape(draws, LANES, stretches * STRETCH).transpose(2, 0, 1)[:STEPS]
        return found

    def _simulate(self, numbers: NDArray[np.int_], limits_ms: Sequence[float]) -> list[Floats]:
        """For each limit, [draw, N]. Arrays are [draw * lane, N]; time is in periods, frame i is due at (i + 1) / N."""
        n, times, draws = numbers[None, :].astype(float), self.times, len(self._weights)
        sizes = np.arange(1, int(numbers.max()) + 1, dtype=float)
        beyond = np.log(np.maximum(1.0, sizes / times.sizes[-1]))
        within = np.where(self._gaps < 0.5, times.stepped(sizes, 2 * self._gaps), times.at(sizes))
        tables = within / self.period_ms * np.exp(self._beyond * beyond)  # [draw, size]
        row = np.repeat(np.arange(draws), LANES)[:, None] * len(sizes) - 1
        usual, mixture = np.repeat(self._level, LANES, axis=0), np.repeat(self._mixture, LANES, axis=0)
        picks = self._picks.reshape(STEPS, -1, 1)
        factors = usual * (times.ratios[picks] + (1 - mixture) * times.excess_ratios[picks])
        added = mixture * times.excess_ms[picks] / self.period_ms
        shape, most = (draws * LANES, len(numbers)), np.minimum(n, self.max_batch)
        done, free, late = np.zeros(shape), np.zeros(shape), [np.zeros(shape) for _ in limits_ms]
        costs = tables.ravel()
        for factor, more in zip(factors, added, strict=True):
            begin = np.maximum((done + 1) / n, free)
            batch = np.minimum(np.maximum(np.floor(begin * n + 1e-9) - done, 1), most)
            free = begin + costs[row + batch.astype(int)] * factor + more
            for i, limit_ms in enumerate(limits_ms):
                late[i] += np.minimum(
                    np.maximum(np.floor((free - limit_ms / self.period_ms) * n) - done, 0), batch
                )
            done += batch
        merged = [total.reshape(draws, LANES, -1).sum(axis=1) for total in (*late, done)]
        return [total / merged[-1] for total in merged[:-1]]


def _rising(shares: Floats) -> Floats:
    fitted: Floats = isotonic_regression(shares).x
    return fitted
