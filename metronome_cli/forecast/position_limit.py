"""A session's own end: the first of N sessions whose positions pass a limit (the trained context, a stage's
cap).

Positions only grow, so one session is past the limit after k frames with probability P(T_k > limit), and
the first of N independent ones with 1 - (1 - P)^N, taken over their staggered starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metronome_cli.forecast.growth import CacheGrowth
from metronome_cli.forecast.pool_fill import staggered_starts


@dataclass(frozen=True, slots=True)
class PositionLimit:
    """`limit` positions a session, in one store. A frame that would pass it ends the session."""

    name: str
    growth: CacheGrowth
    sessions: int
    limit: int
    over_s: float = 0.0

    @property
    def first_order_s(self) -> float:
        """(limit - head) / mean growth; infinite when nothing grows."""
        speed = self.growth.per_second
        return max(0.0, self.limit - self.growth.head) / speed if speed else math.inf

    def by(self, t_s: float) -> float:
        """P(some session is past the limit at or before that instant)."""
        starts = staggered_starts(self.sessions, self.growth.period_s, self.over_s)
        frames = np.maximum(0, np.floor((t_s - starts) / self.growth.period_s + 1e-9)).astype(np.int64)
        log_none = 0.0
        for served, count in zip(*np.unique(frames, return_counts=True), strict=True):
            past = min(1.0, self.growth.positions_law(int(served)).above(self.limit))
            if past >= 1.0:
                return 1.0
            log_none += int(count) * math.log1p(-past)
        return 0.0 - math.expm1(log_none)
