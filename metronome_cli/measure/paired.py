"""The same script alone and under load: the median of paired differences, with an exact interval.

A pair is one turn, word or frame of the canary, by number; its difference is the time under load minus the time alone.
`added` is the median of the differences. Its interval is that of the sign test: between the r-th smallest and the r-th
largest difference, r the largest with 2 P(X < r) <= 1 - confidence for X ~ Binomial(n, 1/2). Nothing is assumed of the
shape of the differences. Fewer than 8 pairs cannot reach 99 %. Left out: what was answered in one pass only.
Source: Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

REPEATABLE_SHARE = 0.10  # two passes alone that differ by more were not made on an idle server


@dataclass(frozen=True, slots=True)
class Bounded:
    """An estimate with its interval; `low` and `high` are None if the data cannot reach the confidence."""

    estimate: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0


def median_interval(differences: Sequence[float], confidence: float = 0.99) -> Bounded:
    """The median of `differences` and the exact interval of the true median."""
    ordered, n = sorted(differences), len(differences)
    if not n:
        return Bounded(None)
    rank = _rank(n, 1 - confidence)
    if not rank:
        return Bounded(statistics.median(ordered), n=n)
    return Bounded(statistics.median(ordered), ordered[rank - 1], ordered[n - rank], n)


def _rank(n: int, error: float) -> int:
    """The largest r with 2 P(X < r) <= error for X ~ Binomial(n, 1/2); 0 if there is none."""
    below, rank, ways = 0, 0, 1
    limit = math.floor(error / 2 * 2**n) if n < 1000 else int(error / 2 * (1 << n))
    while below + ways <= limit:
        below += ways
        rank += 1
        ways = ways * (n - rank + 1) // rank
    return rank


def differences(alone: Mapping[int, float], loaded: Mapping[int, float]) -> list[float]:
    """Loaded minus alone for each number that both have."""
    return [loaded[number] - alone[number] for number in sorted(alone.keys() & loaded.keys())]


def is_repeatable(first: Mapping[int, float], second: Mapping[int, float]) -> bool | None:
    """True if the medians of two passes alone differ by at most a tenth; None without a pair."""
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    a, b = (statistics.median([one[number] for number in shared]) for one in (first, second))
    return abs(a - b) <= REPEATABLE_SHARE * max(abs(a), abs(b), 1e-9)
