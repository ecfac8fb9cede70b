"""How sure a mean or a share is.

Means: Student's interval (Biometrika 6, 1908) of values that have nothing to do with each other. Tokens of a
text do: neighbours are alike, and taking them one by one would claim too much. So a text's losses are cut into
blocks, and the blocks' means are those values. How far tokens are alike depends on the text: a passage that was
said before, word for word, is some hundred tokens in a row. So blocks of 64, 128, 256, ... tokens are tried
while at least 20 are left, and the widest interval stands, which errs on the careful side. Shares: Wilson's
interval (Journal of the American Statistical Association 22, 1927). Both ends are at 95 % one-sided, so the
interval as a whole is a 90 % one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ONE_SIDED = 0.95
BLOCK = 64  # tokens
LEAST_BLOCKS = 20  # fewer say too little of their own spread
_Z = 1.6448536269514722  # of ONE_SIDED
_Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float


def mean_of(values: npt.ArrayLike) -> Estimate | None:
    """The mean of values that have nothing to do with each other; None with fewer than two."""
    data = np.asarray(values, dtype=np.float64)
    return _student(data, np.ones(len(data))) if len(data) > 1 else None


def mean_of_stretches(stretches: Sequence[npt.ArrayLike]) -> Estimate | None:
    """The mean over all tokens of some stretches, each in its order; None with fewer than two blocks.

    No block reaches from one stretch into the next. A stretch shorter than a block is one.
    """
    data = [each for one in stretches if len(each := np.asarray(one, dtype=np.float64))]
    total = sum(map(len, data))
    if total < 2 * BLOCK:
        return None
    sizes = [BLOCK]
    while total >= 2 * LEAST_BLOCKS * sizes[-1]:
        sizes.append(2 * sizes[-1])
    found = [_student(*_blocks(data, size)) for size in sizes]
    return max(found, key=lambda one: one.high - one.low)


def _blocks(data: Sequence[_Values], size: int) -> tuple[_Values, _Values]:
    """Means and lengths of blocks of at least `size` tokens, as even as they get."""
    parts = [part for one in data for part in np.array_split(one, max(1, len(one) // size))]
    return np.array([part.mean() for part in parts]), np.array([len(part) for part in parts], dtype=float)


def _student(means: _Values, lengths: _Values) -> Estimate:
    from scipy.stats import t

    count, weights = len(means), lengths / lengths.sum()
    value = float((weights * means).sum())
    variance = count / (count - 1) * float(((weights * (means - value)) ** 2).sum())
    half = float(t.ppf(ONE_SIDED, count - 1)) * math.sqrt(variance)
    return Estimate(value, value - half, value + half)


def share_of(hits: int, total: int) -> Estimate | None:
    """Wilson's interval of a share; None without data."""
    if total <= 0:
        return None
    share, spread = hits / total, _Z * _Z / total
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return Estimate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))
