"""The memory guard: admission that looks at where occupancy will be, not where it is.

Between ends every session only grows, so the pool's use peaks at the end of some session. For each such instant,
`ahead` seconds from now, the guard forecasts the use of the sessions still seated then,

    sum of mean(age + ahead)  +  (blocks used now - sum of mean(age))  +  z sqrt(sum of variance(ahead))

where the middle term carries forward what the seated sessions hold beyond the mean and the last one is the margin
for what they may still do: how much of the time each will speak. A caller is admitted only when, with them
seated too, no such instant passes the pool. The normal margin is short for very few sessions with long turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Z = 3.0  # one-sided 99.87 % of a normal


@dataclass(frozen=True, slots=True)
class ActiveSession:
    """What the guard knows of a seated session: its age now and the age at which it ends, seconds."""

    age_s: float
    end_age_s: float

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.end_age_s - self.age_s)


@dataclass(frozen=True, slots=True)
class BlockGrowth:
    """How one session's cache grows: mean blocks at an age, and variance of the blocks added in a span."""

    mean: Callable[[float], float]
    variance: Callable[[float], float]


class MemoryGuard:
    """Admits a session only if the forecast peak of the pool's use stays within `total_blocks`."""

    def __init__(self, growth: BlockGrowth, total_blocks: int, z: float = Z) -> None:
        self._growth = growth
        self._total = total_blocks
        self._z = z

    def peak_blocks(self, seats: Sequence[ActiveSession], used_now: float) -> float:
        """Largest forecast use, in blocks, over the rest of these sessions' lives."""
        ahead = sorted({seat.remaining_s for seat in seats})
        surplus = used_now - sum(self._growth.mean(seat.age_s) for seat in seats)
        return max((self._use_at(instant, seats, surplus) for instant in ahead), default=0.0)

    def _use_at(self, ahead_s: float, seats: Sequence[ActiveSession], surplus: float) -> float:
        staying = [seat for seat in seats if seat.remaining_s >= ahead_s]
        mean = sum(self._growth.mean(seat.age_s + ahead_s) for seat in staying)
        variance = len(staying) * self._growth.variance(ahead_s)
        return mean + surplus + self._z * math.sqrt(variance)

    def admits(self, seats: Sequence[ActiveSession], newcomer: ActiveSession, used_now: float) -> bool:
        """Whether one more session may be seated; `used_now` are the blocks the seated ones hold."""
        return (
            self.peak_blocks([*seats, newcomer], used_now + self._growth.mean(newcomer.age_s)) <= self._total
        )
