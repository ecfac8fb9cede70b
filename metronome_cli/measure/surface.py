"""The cost surface T(N, age) of a frame step, from points measured on it.

    T(N, r) = a + b N + c N r        a, b, c >= 0

N sessions in the batch, r resident cache tokens of each: `a` is what a step costs whoever comes (weights, launches),
`b` a session's own share (projections, encoder), `c` what one resident token costs (attention). Fitted by
non-negative least squares on the medians, each weighted by 1 / T so that the error is relative; `spread` is the root
mean square of those relative errors. A known error: small batches cost less than the line says on CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Cost:
    """One measured point: median seconds of a step of `sessions` that hold `resident` tokens each."""

    sessions: int
    age_s: float
    resident: int
    step_s: float


@dataclass(frozen=True, slots=True)
class Surface:
    """The fitted plane. `spread` is the relative root-mean-square error of the fit."""

    fixed_s: float
    per_session_s: float
    per_token_s: float
    spread: float

    def step_s(self, sessions: float, resident: float) -> float:
        """T(N, r) in seconds."""
        return self.fixed_s + sessions * (self.per_session_s + resident * self.per_token_s)

    def sessions_within(self, deadline_s: float, resident: float) -> int | None:
        """Largest N whose step fits the deadline; 0 when none does, None when N costs nothing."""
        each = self.per_session_s + resident * self.per_token_s
        if each <= 0:
            return None
        return max(0, math.floor((deadline_s - self.fixed_s) / each))


def fit(costs: Sequence[Cost]) -> Surface | None:
    """The surface through those points; None with fewer points than unknowns."""
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
    return Surface(float(fixed), float(per_session), float(per_token), float(np.sqrt(np.mean(errors**2))))


@dataclass(frozen=True, slots=True)
class Slope:
    """How a step's time changes from the youngest age to the oldest at one batch size."""

    sessions: int
    ratio: float  # oldest / youngest
    flat: bool


FLAT_WITHIN = 0.05


def slope(costs: Sequence[Cost], noise: float) -> Slope | None:
    """At the largest batch that was measured at two ages or more. `noise`: relative, of one point's median."""
    by_batch: dict[int, list[Cost]] = {}
    for cost in costs:
        by_batch.setdefault(cost.sessions, []).append(cost)
    aged = [group for group in by_batch.values() if len({c.age_s for c in group}) > 1]
    if not aged:
        return None
    group = max(aged, key=lambda group: group[0].sessions)
    young, old = min(group, key=lambda c: c.age_s), max(group, key=lambda c: c.age_s)
    ratio = old.step_s / young.step_s
    return Slope(young.sessions, ratio, abs(ratio - 1) <= max(FLAT_WITHIN, 2 * noise))
