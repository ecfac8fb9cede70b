"""N* with an interval: what the batches of all trials, at any number of sessions, tell about every number.

What: N* is the largest number of sessions whose share of late frames is within the objective. From: each measured
batch (its frames, its worst and median latency), warm-up left out. Model: the typical latency grows with N (isotonic
in the medians of the trials). The frames of a trial, moved to another N in proportion to the typical latency there,
say which share of frames is late at that N. Frames far above the typical latency are moved by a mixture of their
ratio and their excess, since load scales the first and interference the second. Frames that were late near N itself
count in full. Interval: a Bayesian bootstrap over trials (Rubin, Annals of Statistics 9, 1981); the slope between two
trials, the mixture and the difference between engines are drawn anew each time. Given a draw, the share of late frames
has a Beta posterior. Left out: objectives on the largest value seen, and memory, which has a sharp edge of its own.
Known error: a disturbance that no trial fell into is not seen. The constants were chosen on the simulated machines of
benchmarks/nstar.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import betainc, betaln

from metronome_cli.capacity.disturbance import disturbed
from metronome_cli.capacity.queue_model import QueueModel, Stepping
from metronome_cli.capacity.samples import Samples

Floats = NDArray[np.float64]

DRAWS = 48  # of the bootstrap
GRID = 240  # numbers of sessions at which a share is estimated, at the most
NEAR = 0.05  # in log N: how far away a batch counts for 1/e of one seen at N itself
MODEL_BATCHES = 120.0  # effective batches that the moved frames are worth
MODEL_RANGE = 0.5  # in log N: how far away a trial's moved frames count for 1/e
LOADED = (0.1, 1.0)  # typical latency over the limit, between which trials tell how latency varies
OUTLIER = 1.5  # times the typical latency: what is above may be interference
ENGINES = (0.02, 0.12)  # least and largest standard deviation of log latency between two engines at one N
STEEPEST = 4.0  # largest slope of log latency over log N that is continued beyond the trials
CURVE_POINTS = 40  # of the share of late frames in a report
TAIL_QUANTILE = 0.95  # latency beyond which batches are counted as clusters
LOW, MEDIAN, HIGH = (
    0.95,
    0.5,
    0.05,
)  # probability that N holds, at the ends and in the middle of the interval of 90 %
UNSEEN_MOST = 0.7  # of the allowed share: what was not seen does not break an objective by itself
UNSEEN = 5.0  # late batches that follow a rare disturbance; Jeffreys' prior for how often there is one
SMEAR = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))  # Gauss-Hermite nodes and weights


@dataclass(frozen=True, slots=True)
class Interval:
    """A number of sessions and its 90 % interval; 0: not even one session."""

    sessions: int
    low: int
    high: int


class Estimator:
    """All evidence so far. `limits`: (latency in ms, allowed share of frames above it), one for each objective."""

    def __init__(
        self, limits: Sequence[tuple[float, float]], ceiling: int, stepping: Stepping | None = None
    ) -> None:
        self.limits = [one for one in sorted(set(limits)) if not any(_implied(one, by) for by in set(limits))]
        self.grid = np.unique(np.round(np.geomspace(1, max(1, ceiling), GRID)).astype(int))
        self.trials: list[Samples] = []
        self.disturbed_s = 0.0
        self._ceiling, self._stepping = max(1, ceiling), stepping
        self._rng = np.random.default_rng(0)  # the same evidence gives the same interval

    def add(self, samples: Samples) -> None:
        """One trial, or one window of a ramp."""
        if len(samples):
            self.trials.append(samples)

    def update(self) -> None:
        """Estimate anew from all trials."""
        marks = disturbed(self.trials, self.limits[0][0], steps=self._stepping is not None)
        self.disturbed_s = sum(_seconds(one, mark) for one, mark in zip(self.trials, marks, strict=True))
        self._fit = _Fit(self.trials, self.grid, self._rng)
        posteriors = [
            self._fit.posterior(*limit, model)
            for limit, model in zip(self.limits, self._models(), strict=True)
        ]
        self.shares = [(a, b, share) for (a, b), (_, share) in zip(posteriors, self.limits, strict=True)]
        left = [share - np.minimum(UNSEEN_MOST * share, self._fit.unseen) for _, _, share in self.shares]
        chances: Floats = np.min(
            [betainc(a, b, rest) for (a, b, _), rest in zip(self.shares, left, strict=True)], axis=0
        )
        self.holds = self._fit.falling(chances)
        calm = [one.only(~mark) for one, mark in zip(self.trials, marks, strict=True)]
        self._calm = _Fit([one for one in calm if len(one)], self.grid, self._rng)

    def _models(self) -> list[Floats | None]:
        """Shares of late frames by the queue model, for each limit; None if the engine's steps are not seen."""
        fit = self._fit
        if self._stepping is None:
            return [None for _ in self.limits]
        queue = QueueModel(self.trials, fit.weights, self._stepping, self._ceiling, self._rng)
        return list(queue.shares([limit for limit, _ in self.limits], self.limits[0][1], self.grid))

    @property
    def interval(self) -> Interval:
        """N* as the machine was."""
        return _interval(self.grid, self.holds)

    @property
    def undisturbed(self) -> Interval:
        """N* without disturbed seconds and with outliers replaced by an exponential tail."""
        fits: Floats = np.min([self._calm.fits(*limit) for limit in self.limits], axis=0)
        return _interval(self.grid, self._calm.falling(fits))

    def chance(self, sessions: float) -> float:
        """Probability that so many hold."""
        return float(np.interp(math.log(sessions), np.log(self.grid), self.holds))

    def passes(self, batches: float) -> Floats:
        """Probability that a trial of so many effective batches has no late frame, for each N of the grid."""
        theta = self._fit.clusters
        a, b, _ = self.shares[0]
        clean: Floats = np.exp(betaln(a, b + batches * theta) - betaln(a, b))
        return self._fit.falling(clean)

    def fails(self) -> Floats:
        """Probability that so many frames are late that a short trial refutes it, for each N of the grid."""
        a, b, share = self.shares[0]
        passes = np.asarray(betainc(a, b, min(0.5, 4 * share)), dtype=np.float64)
        return 1 - self._fit.falling(passes)

    def late_share(self, sessions: int) -> float:
        """Expected share of late frames."""
        a, b, _ = self.shares[0]
        return float(np.interp(math.log(sessions), np.log(self.grid), np.mean(a / (a + b), axis=0)))

    def curve(self) -> list[tuple[int, float, float, float]]:
        """(N, expected share of late frames, and its 90 % interval) where the share rises, and at one session."""
        a, b, share = self.shares[0]
        shares = a / (a + b)
        expected, low, high = shares.mean(axis=0), *np.quantile(shares, (0.05, 0.95), axis=0)
        rises = np.flatnonzero((expected > 0.02 * share) & (expected < 0.9))
        first, last = (max(0, rises[0] - 4), rises[-1]) if len(rises) else (0, len(self.grid) - 1)
        kept = np.unique(np.linspace(first, last, CURVE_POINTS).astype(int))
        return [
            (int(self.grid[i]), float(expected[i]), float(low[i]), float(high[i]))
            for i in sorted({0, *kept.tolist()})
        ]

    def typical_ms(self, sessions: int) -> float:
        """Typical latency."""
        return float(np.exp(self._fit.typical(np.array([float(sessions)]))[0]))


def _implied(one: tuple[float, float], by: tuple[float, float]) -> bool:
    """Whether the limit `by` is stricter in both ways."""
    return one != by and by[0] <= one[0] and by[1] <= one[1]


def _seconds(samples: Samples, mark: NDArray[np.bool_]) -> float:
    return float(np.diff(samples.t_s, prepend=samples.t_s[0])[mark].sum())


def _interval(grid: NDArray[np.int_], holds: Floats) -> Interval:
    largest = [int(grid[holds >= chance].max(initial=0)) for chance in (MEDIAN, LOW, HIGH)]
    return Interval(*largest)


class _Fit:
    """Typical latency and spread of some trials. Arrays are [draw, N of the grid] or [draw, trial]."""

    def __init__(self, trials: Sequence[Samples], grid: NDArray[np.int_], rng: np.random.Generator) -> None:
        self.trials, self.grid = trials, grid
        self.at = np.log([one.sessions for one in trials])
        self.medians = np.log([_weighted_median(one.median_ms, one.frames) for one in trials])
        self.sizes = np.array([len(one) for one in trials], dtype=float)
        self.weights = rng.exponential(size=(DRAWS, len(trials)))
        self.unseen = UNSEEN * rng.gamma(0.5, size=(DRAWS, 1)) / self.sizes.sum()
        self.mixture = rng.uniform(0, 1, (DRAWS, 1))
        self.clusters = _clusters(trials)
        self.effective = np.array([one.effective for one in trials]) * self.clusters
        x = np.log(grid)
        engine = self._between_engines()
        self.engine = engine
        bends, slopes, moves = (
            rng.uniform(-0.3, 1, DRAWS),
            np.exp(0.3 * rng.normal(size=DRAWS)),
            rng.normal(size=DRAWS),
        )
        curves = [_Curve(self, self.weights[i], bends[i], slopes[i]) for i in range(DRAWS)]
        self.there = np.array([curve(x) + engine * move for curve, move in zip(curves, moves, strict=True)])
        self.here = np.array([curve.y[curve.index] for curve in curves])
        self.distance = np.abs(x[None, :] - self.at[:, None])  # [trial, N]
        self._tables = [_tail_table(one) for one in trials]

    def typical(self, sessions: Floats) -> Floats:
        """Log latency with all trials at their own weight."""
        return _Curve(self, np.ones(len(self.trials)), 0.0, 1.0)(np.log(sessions))

    def _between_engines(self) -> float:
        """Standard deviation of log latency between engines at one N, from how the trials scatter about the curve."""
        big = self.sizes >= np.median(self.sizes)
        curve = _Curve(self, np.ones(len(self.trials)), 0.0, 1.0)
        off = np.abs(self.medians - curve.y[curve.index])[big]
        return float(np.clip(1.48 * np.median(off), *ENGINES))

    def posterior(self, limit_ms: float, share: float, model: Floats | None) -> tuple[Floats, Floats]:
        """a, b of the Beta posterior of the share of frames over the limit."""
        limit = math.log(limit_ms)
        late = self._late(limit)  # [trial, draw, N]
        if model is None:
            typical = self.here.mean(axis=0) - limit
            told = self.sizes * ((typical > math.log(LOADED[0])) & (typical < math.log(LOADED[1])))
            if not told.any():
                told = self.sizes * (np.abs(typical) == np.abs(typical).min())
            model = self._weigh(late, told, MODEL_RANGE, normal=True)
        near = self._weigh(late, self.effective, NEAR)
        seen = self._weigh(np.ones_like(late), self.effective, NEAR)
        tiny = 0.2 * share
        return MODEL_BATCHES * model + near + tiny, MODEL_BATCHES * (1 - model) + seen - near + tiny

    def _weigh(self, values: Floats, size: Floats, scale: float, *, normal: bool = False) -> Floats:
        """Sum over trials, by size, distance and draw; `normal`: the mean."""
        kernel = size[:, None] * np.exp(-self.distance / scale)  # [trial, N]
        weights = self.weights.T[:, :, None] * kernel[:, None, :]
        total = (weights * values).sum(axis=0)
        found: Floats = total / weights.sum(axis=0) if normal else total
        return found

    def _late(self, limit: float) -> Floats:
        """Share of each trial's frames that would be over the limit at each N."""
        here, there = self.here.T[:, :, None], self.there[None, :, :]
        ratio = limit + here - there
        excess = math.exp(limit) - OUTLIER * np.exp(there) + OUTLIER * np.exp(here)
        outlier = limit > there + math.log(OUTLIER)
        moved = np.where(outlier, np.log(np.maximum(excess, 1e-3)), ratio)
        threshold = self.mixture[None] * moved + (1 - self.mixture[None]) * ratio
        return np.array(
            [
                sum(weight * _over(table, one + move * self.engine) for move, weight in SMEAR)
                for table, one in zip(self._tables, threshold, strict=True)
            ]
        )

    def fits(self, limit_ms: float, share: float) -> Floats:
        """Whether each draw's latency at the objective's quantile is within the limit, given an exponential tail."""
        limit = math.log(limit_ms)
        quantiles = []
        for table, typical in zip(self._tables, self.here.T, strict=True):
            values, cumulative = table
            q50, q90 = np.interp([0.5, 0.9], cumulative, values)
            quantiles.append((q50 + math.log(0.5 / share) / math.log(5) * (q90 - q50)) - typical)
        typical = self.here.mean(axis=0) - limit
        told = self.sizes * ((typical > math.log(LOADED[0])) & (typical < math.log(LOADED[1])))
        told = told if told.any() else self.sizes
        weights = self.weights * told
        above = (weights * np.array(quantiles).T).sum(axis=1) / weights.sum(axis=1)
        fits: Floats = (self.there + above[:, None] <= limit).astype(float)
        return fits

    def falling(self, chances: Floats) -> Floats:
        """The mean over draws, made to fall with N."""
        fitted: Floats = isotonic_regression(chances.mean(axis=0), increasing=False).x
        return fitted


class _Curve:
    """Log typical latency over log N, of one draw.

    Between two trials the curve lies between the chord and the slope before it continued, since latency is convex
    in the load; `bend` says where. Beyond the last trial the slope before it continues, `slope` times as steep.
    """

    def __init__(self, fit: _Fit, weights: Floats, bend: float, slope: float) -> None:
        self.x, self.index = np.unique(fit.at, return_inverse=True)
        sizes = np.sqrt(fit.sizes) * weights + 1e-9
        total = np.bincount(self.index, sizes)
        self.y = isotonic_regression(np.bincount(self.index, sizes * fit.medians) / total, weights=total).x
        self.bend, self.slope = bend, slope
        before = [self._slope_before(i) for i in range(len(self.x))]
        self.before = np.array(before)

    def _slope_before(self, i: int) -> float:
        """Of the curve up to point i, over at least 0.15 of log N."""
        j = max(0, int(np.searchsorted(self.x, self.x[i] - 0.15, side="right")) - 1)
        j = min(j, i - 1)
        return 0.0 if j < 0 else float((self.y[i] - self.y[j]) / (self.x[i] - self.x[j]))

    def __call__(self, x: Floats) -> Floats:
        """At each x, in ascending order."""
        chord = np.interp(x, self.x, self.y)
        i = np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, len(self.x) - 1)
        tangent = np.minimum(chord, self.y[i] + self.before[i] * np.clip(x - self.x[i], 0, None))
        beyond = np.clip(x - self.x[-1], 0, None) * self.slope * min(STEEPEST, max(1.0, self.before[-1]))
        curve: Floats = np.maximum.accumulate(chord - self.bend * (chord - tangent)) + beyond
        return curve


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulative, cumulative[-1] / 2)])


def _tail_table(samples: Samples) -> tuple[Floats, Floats]:
    """Log latencies in order and the share of frames up to each: a batch's frames lie evenly about its median."""
    first = np.maximum(2 * samples.median_ms - samples.worst_ms, 0.2 * samples.median_ms)
    parts = (np.arange(8) + 0.5) / 8
    values = np.log(first[:, None] + parts * (samples.worst_ms - first)[:, None]).ravel()
    order = np.argsort(values)
    cumulative = np.cumsum(np.repeat(samples.frames, 8)[order])
    return values[order], cumulative / cumulative[-1]


def _over(table: tuple[Floats, Floats], threshold: Floats) -> Floats:
    """Share of frames over a log latency."""
    values, cumulative = table
    return 1 - np.concatenate([[0.0], cumulative])[np.searchsorted(values, threshold, side="right")]


def _clusters(trials: Sequence[Samples]) -> float:
    """Clusters of slow batches per slow batch (the extremal index by the runs estimator), 1 if they are independent."""
    clusters = slow = 0
    for one in trials:
        if len(one) < 40:
            continue
        over = one.worst_ms > np.quantile(one.worst_ms, TAIL_QUANTILE)
        joined = np.convolve(over, np.ones(3))[: len(over)] > 0  # two batches apart: the same cluster
        clusters += int((np.diff(joined.astype(int), prepend=0) == 1).sum())
        slow += int(over.sum())
    return float(np.clip(clusters / slow, 0.1, 1.0)) if slow else 0.5
