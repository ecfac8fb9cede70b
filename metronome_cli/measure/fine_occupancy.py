"""Occupancy of a trial's pool, fine enough to forecast from: a point per frame period or second, the shorter.

A point is the occupancy after the first step that ends at or after its time. Beyond `MOST` points each second one is
dropped and the spacing doubles. Left out: what happens between two points.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST = 2048


@dataclass(slots=True)
class FineOccupancy:
    """Points (time, s, and occupancy, 0 to 1), `every_s` apart or more."""

    every_s: float
    points: list[tuple[float, float]] = field(default_factory=list)
    _next_s: float = 0.0

    @classmethod
    def of_period(cls, period_s: float) -> FineOccupancy:
        """A point per period, or per second if periods are longer."""
        return cls(min(period_s, 1.0))

    def add(self, t_s: float, occupancy: float) -> None:
        """The occupancy at `t_s`; times must not decrease."""
        if t_s < self._next_s - 1e-9:
            return
        self.points.append((t_s, occupancy))
        if len(self.points) > MOST:
            self.points = self.points[::2]
            self.every_s *= 2
        self._next_s = self.points[-1][0] + self.every_s
