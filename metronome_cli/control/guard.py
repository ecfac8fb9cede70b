"""The memory guard: admission that looks at where occupancy will be, not where it is.

A session admitted now holds `blocks_at(session length)` blocks when it ends, and every session seated before it
ends earlier. The pool is safe when, at each future end, the blocks then held by the sessions still seated fit.
The worst instant is an end of some session, because between ends every session only grows; so the guard sums the
forecast at those instants and admits while the largest sum stays within the pool less a reserve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seat:
    """What the guard knows of a seated session: its age now and the age at which it ends, seconds."""

    age_s: float
    end_age_s: float

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.end_age_s - self.age_s)


class MemoryGuard:
    """Admits a session only if the forecast peak of the pool's use stays within `total_blocks` less a reserve."""

    def __init__(self, blocks_at: Callable[[float], float], total_blocks: int, reserve: float = 0.02) -> None:
        self._blocks_at = blocks_at
        self._limit = total_blocks * (1 - reserve)

    def peak_blocks(self, seats: Sequence[Seat]) -> float:
        """Largest forecast use, in blocks, over the rest of these sessions' lives."""
        instants = sorted({seat.remaining_s for seat in seats})
        return max((self._use_at(instant, seats) for instant in instants), default=0.0)

    def _use_at(self, ahead_s: float, seats: Sequence[Seat]) -> float:
        return sum(self._blocks_at(seat.age_s + ahead_s) for seat in seats if seat.remaining_s >= ahead_s)

    def admits(self, seats: Sequence[Seat], newcomer: Seat) -> bool:
        """Whether one more session may be seated."""
        return self.peak_blocks([*seats, newcomer]) <= self._limit
