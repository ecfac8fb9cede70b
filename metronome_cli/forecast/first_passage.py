"""The first of several hazards of a run: its time, its spread, and which one it is.

The hazards share the same speech, so they are positively dependent; taking them as independent,
P(none by t) = prod (1 - P_j(t)), errs towards an earlier end. Most profiles have one that leads by far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

HORIZON_S = 30 * 86_400.0  # a pool that lasts longer "does not saturate"
_TOLERANCE = 1e-5
_SOONEST_S = 1e-3
_LEAST = 1e-6  # a smaller probability counts as never


class Hazard(Protocol):
    """Something that ends a run at a random instant."""

    @property
    def name(self) -> str: ...

    @property
    def first_order_s(self) -> float:
        """Where the mean growth puts it, in seconds; infinite for never."""

    def by(self, t_s: float) -> float:
        """P(it has happened at or before `t_s`); never falls with `t_s`."""


@dataclass(frozen=True, slots=True)
class FirstPassage:
    """The first of these hazards."""

    hazards: Sequence[Hazard]

    def by(self, t_s: float) -> float:
        """P(some hazard has happened at or before `t_s`)."""
        chances = [hazard.by(t_s) for hazard in self.hazards]
        return (
            1.0
            if max(chances, default=0.0) >= 1
            else 0.0 - math.expm1(sum(map(math.log1p, (-p for p in chances))))
        )

    def quantile(self, share: float, guess_s: float | None = None) -> float | None:
        """The instant by which it has happened with probability `share`; None beyond the horizon."""
        if guess_s is None:
            guess_s = min((hazard.first_order_s for hazard in self.hazards), default=math.inf)
        return quantile(self.by, share, guess_s)

    def binding(self, t_s: float) -> str:
        """The hazard most likely by then, the earlier one on the mean among equals; "none" if all are
        impossible.
        """
        first = min(self.hazards, key=lambda h: (-round(h.by(t_s), 6), h.first_order_s), default=None)
        possible = first is not None and (first.by(t_s) >= _LEAST or first.first_order_s < HORIZON_S)
        return first.name if first is not None and possible else "none"


def quantile(by: Callable[[float], float], share: float, guess_s: float) -> float | None:
    """Smallest t >= 0 with by(t) >= share, to five digits; None beyond the horizon. A good guess saves work."""
    if by(0.0) >= share:
        return 0.0
    high = min(max(guess_s, _SOONEST_S), HORIZON_S)
    step = 1 + 4 * _TOLERANCE
    while by(high) < share:
        if high >= HORIZON_S:
            return None
        high = min(step * high, HORIZON_S)
        step = min(step * step, 2.0)
    low = high / step
    while low > _SOONEST_S and by(low) >= share:
        step = min(step * step, 2.0)
        low, high = low / step, low
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if by(middle) >= share else (middle, high)
    return high
