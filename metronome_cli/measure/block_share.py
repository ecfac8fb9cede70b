"""Share of bad units among units that are correlated in time, from counts per block of time.

A unit is what one observation is about: a turn, an answer, a word, one listener in one period. Units that belong
together (all listeners of one period) form a cluster. With x bad of m units in each cluster the share is
p = sum x / sum m, on n = (sum m)^2 / sum m^2 effective units (Kish 1965, section 8.2). The run is cut into blocks of
time; from the B blocks with n_b effective and k_b bad units each, the design effect is

    deff = max(1, var(k_b - p n_b) / (mean(n_b) p (1 - p)))

and ceil(k / deff) of floor(n / deff) units are judged. Without a bad unit deff is 1. Left out: blocks without a unit.
Known error: with fewer than about 8 blocks the variance itself is uncertain.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

BLOCK_S = 10.0  # shortest block; also at least BLOCK_PERIODS periods
BLOCK_PERIODS = 10


def block_length_s(period_s: float) -> float:
    """Length of a block of time, seconds."""
    return max(BLOCK_S, BLOCK_PERIODS * period_s)


@dataclass(slots=True)
class BlockCounts:
    """Counts of one block."""

    units: int = 0
    bad: int = 0
    units_sq: int = 0  # sum over clusters of (units of the cluster)^2


@dataclass(slots=True)
class BlockShare:
    """Bad units among all, by blocks of `block_s` seconds."""

    block_s: float = BLOCK_S
    blocks: dict[int, BlockCounts] = field(default_factory=dict)

    def add(self, t_s: float, bad: int, units: int = 1) -> None:
        """Count one cluster of `units` at `t_s` on the trial clock, `bad` of them bad."""
        if units <= 0:
            return
        block = self.blocks.setdefault(int(t_s // self.block_s), BlockCounts())
        block.units += units
        block.bad += bad
        block.units_sq += units * units

    @property
    def units(self) -> int:
        return sum(block.units for block in self.blocks.values())

    @property
    def bad(self) -> int:
        return sum(block.bad for block in self.blocks.values())

    @property
    def share(self) -> float | None:
        """Bad units / all units; None without a unit."""
        return self.bad / self.units if self.units else None

    def effective(self) -> tuple[int, int]:
        """Bad units and all units as of independent observations: (k, n)."""
        units, bad = self.units, self.bad
        if not units:
            return 0, 0
        effective = units * units / sum(block.units_sq for block in self.blocks.values())
        scale = effective / units  # one unit in effective units
        blocks = list(self.blocks.values())
        deff = design_effect([b.bad * scale for b in blocks], [b.units * scale for b in blocks])
        n = math.floor(effective / deff)
        return min(n, math.ceil(bad * scale / deff - 1e-9)), n


def design_effect(bad: Sequence[float], units: Sequence[float]) -> float:
    """Variance of the bad units between blocks over that of independent units; at least 1."""
    total = sum(units)
    share = sum(bad) / total if total else 0.0
    if len(units) < 2 or not 0 < share < 1:
        return 1.0
    residuals = [k - share * n for k, n in zip(bad, units, strict=True)]
    expected = total / len(units) * share * (1 - share)
    return max(1.0, statistics.variance(residuals) / expected)
