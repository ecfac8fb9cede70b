"""The memory guard: admission by the forecast occupancy of the pool.

A session's cache only grows until its end, so the pool's use peaks when some session ends. For each such time, `ahead`
seconds from now, the guard forecasts the use of the sessions that are still open then,

    sum of mean(age + ahead)  +  (blocks used now - sum of mean(age))  +  z sqrt(sum of variance(ahead))

where the middle term is the blocks that open sessions hold beyond the mean, and the last one is the margin for the
unknown share of time in which each will speak. A session is admitted only if, with it, the forecast never exceeds the
pool. Known error: the normal margin is too small for very few sessions with long turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Z = 3.0  # one-sided 99.87 % of a normal


@dataclass(frozen=True, slots=True)
class ActiveSession:
    """An open session: its age now and the age at which it ends, s."""

    age_s: float
    end_age_s: float

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.end_age_s - self.age_s)


@dataclass(frozen=True, slots=True)
class BlockGrowth:
    """Growth of one session's cache: mean blocks at an age, and variance of the blocks added in a span of time."""

    mean: Callable[[float], float]
    variance: Callable[[float], float]


class MemoryGuard:
    """Admits a session only if the forecast peak of the pool's use stays within `total_blocks`."""

    def __init__(self, growth: BlockGrowth, total_blocks: int, z: float = Z) -> None:
        self._growth = growth
        self._total = total_blocks
        self._z = z

    def peak_blocks(self, sessions: Sequence[ActiveSession], used_now: float) -> float:
        """Return the largest forecast use, in blocks, over the rest of these sessions' lifetimes."""
        ahead = sorted({session.remaining_s for session in sessions})
        surplus = used_now - sum(self._growth.mean(session.age_s) for session in sessions)
        return max((self._use_at(instant, sessions, surplus) for instant in ahead), default=0.0)

    def _use_at(self, ahead_s: float, sessions: Sequence[ActiveSession], surplus: float) -> float:
        staying = [session for session in sessions if session.remaining_s >= ahead_s]
        mean = sum(self._growth.mean(session.age_s + ahead_s) for session in staying)
        variance = len(staying) * self._growth.variance(ahead_s)
        return mean + surplus + self._z * math.sqrt(variance)

    def admits(self, sessions: Sequence[ActiveSession], candidate: ActiveSession, used_now: float) -> bool:
        """Return True if one more session may be admitted. `used_now`: blocks that the open sessions hold."""
        return (
            self.peak_blocks([*sessions, candidate], used_now + self._growth.mean(candidate.age_s))
            <= self._total
        )
