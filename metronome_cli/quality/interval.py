"""How sure a mean or a share is.

Means of losses: a bootstrap over blocks of neighbouring tokens, since neighbours are alike and drawing them
one by one would claim too much (Künsch, Annals of Statistics 17, 1989; blocks here do not overlap). Shares:
Wilson's interval (Journal of the American Statistical Association 22, 1927). Both ends are at 95 % one-sided,
so the interval as a whole is a 90 % one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ONE_SIDED = 0.95
BLOCK = 64  # tokens
DRAWS = 2000
_Z = 1.6448536269514722  # of ONE_SIDED


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float


def mean_of(values: npt.ArrayLike, block: int = BLOCK, seed: int = 0) -> Estimate | None:
    """The mean of values in their order, blocks of `block` drawn again and again; None without two blocks."""
    data = np.asarray(values, dtype=np.float64)
    count = len(data) // block
    if count < 2:
        return None
    whole = data[: count * block].reshape(count, block).mean(axis=1)
    drawn = np.random.default_rng(seed).integers(0, count, (DRAWS, count))
    low, high = np.quantile(whole[drawn].mean(axis=1), [1 - ONE_SIDED, ONE_SIDED])
    value = float(whole.mean())
    return Estimate(value, min(float(low), value), max(float(high), value))


def share_of(hits: int, total: int) -> Estimate | None:
    """Wilson's interval of a share; None without data."""
    if total <= 0:
        return None
    share, spread = hits / total, _Z * _Z / total
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return Estimate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))
