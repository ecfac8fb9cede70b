"""The cost surface T(N, age) of a frame step, from points measured on it.

    T(N, r) = a + b N + c N r        a, b, c >= 0

N sessions in the batch, r resident cache tokens of each: `a` is the fixed cost of a step (weights, launches),
`b` the cost per session (projections, encoder), `c` the cost per resident token (attention). Fitted by
non-negative least squares on the medians, each weighted by 1 / T so that the error is relative; `spread` is the root
mean square of those relative errors. Known error: on CPUs small batches cost less than the fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class CostPoint:
    """One measured point: median seconds of a step of `sessions` that hold `resident` tokens each."""

    sessions: int
    age_s: float
    resident: int
    step_s: float


@dataclass(frozen=True, slots=True)
class CostSurface:
    """The fitted plane. `spread` is the relative root-mean-square error of the fit."""

    fixed_s: float
    per_session_s: float
    per_token_s: float
    spread: float

    def step_s(self, sessions: float, resident: float) -> float:
        """T(N, r) in seconds."""
        return self.fixed_s + sessions * (self.per_session_s + resident * self.per_token_s)

    def sessions_within(self, deadline_s: float, resident: float) -> int | None:
        """Return the largest N whose step fits the deadline; 0 if none does, None if the fitted cost per session is
        0."""
        each = self.per_session_s + resident * self.per_token_s
        if each <= 0:
            return None
        return max(0, math.floor((deadline_s - self.fixed_s) / each))


def fit(costs: Sequence[CostPoint]) -> CostSurface | None:
    """Fit the surface to measured points; None with fewer points than unknowns."""
    if len(costs) < 3:
        return None
    from scipy.optimize import nnls

    times = np.array([cost.step_s for cost in costs])
    sessions = np.array([cost.sessions for cost in costs], dtype=float)
    resident = np.array([cost.resident for cost in costs], dtype=float)
    rows = np.stack([np.ones_like(times), sessions, sessions * resident], axis=1) / times[:, None]
    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1.0
    solution, _ = nnls(rows / scale, np.ones_like(times))
    fixed, per_session, per_token = solution / scale
    errors = rows @ (solution / scale) - 1.0
    return CostSurface(float(fixed), float(per_session), float(per_token), float(np.sqrt(np.mean(errors**2))))


@dataclass(frozen=True, slots=True)
class AgeSlope:
    """How a step's time changes from the youngest age to the oldest at one batch size.

    `ratio`: oldest over youngest, with its interval. `flat`: True if the time does not grow with age, False if it
    does, None if the steps varied too much to decide.
    """

    sessions: int
    ratio: float
    low: float
    high: float
    flat: bool | None


FLAT_WITHIN = 0.1
ONE_SIDED = 0.95


def slope(sessions: int, young_s: Sequence[float], old_s: Sequence[float]) -> AgeSlope | None:
    """Compare pairs of alternating steps, so that a slow spell of the machine affects both.

    The ratio is the median of the pairs' ratios, its interval that of their order statistics, each end at 95 %
    one-sided (the sign test inverted; no noise distribution is assumed). Flat if the upper end is within
    `FLAT_WITHIN`, growing if the lower end is beyond it. None with fewer than 5 pairs, which have no such interval.
    """
    ratios = sorted(old / young for young, old in zip(young_s, old_s, strict=False))
    outside = _outside(len(ratios))
    if outside is None:
        return None
    low, high = ratios[outside], ratios[-1 - outside]
    flat = True if high <= 1 + FLAT_WITHIN else False if low > 1 + FLAT_WITHIN else None
    return AgeSlope(sessions, float(np.median(ratios)), low, high, flat)


def _outside(count: int) -> int | None:
    """Return how many ordered pairs may be dropped at each end; None if there are too few pairs for an interval."""
    chance, found = 0.0, None
    for left_out in range(count // 2):
        chance += math.comb(count, left_out) / 2**count
        if chance > 1 - ONE_SIDED:
            break
        found = left_out
    return found
