"""Whether capacity comes back: the slope of what stays in use from cycle to cycle, with an exact interval.

A cycle fills the server, holds, leaves and waits; u_c is the lowest occupancy at the end of the wait (without metrics,
the share of sessions that the next fill could not start). `leak` is the Theil-Sen slope: the median of all
(u_j - u_i) / (j - i). Its interval comes from the exact null distribution of Kendall's S: between the slopes of ranks
(N - C + 2) / 2 from either end, N the number of slopes and C the smallest value with P(S >= C) <= (1 - confidence) / 2.
No shape of the noise is assumed. 99 % needs 6 cycles. Left out: the first cycle, which fills prefix caches once.
Source: Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition, sections 9.3 and 9.4.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from metronome_cli.measure.paired import Bounded

FEWEST_CYCLES = 6  # for 99 %


def slope_per_cycle(levels: Sequence[float], confidence: float = 0.99) -> Bounded:
    """Change of `levels` per cycle; None below 2 cycles, and without interval if there are too few."""
    n = len(levels)
    if n < 2:
        return Bounded(None, n=n)
    slopes = sorted((levels[j] - levels[i]) / (j - i) for i, j in itertools.combinations(range(n), 2))
    middle, critical = statistics.median(slopes), _critical(n, (1 - confidence) / 2)
    if critical is None:
        return Bounded(middle, n=n)
    rank = (len(slopes) - critical + 2) // 2
    return Bounded(middle, slopes[rank - 1], slopes[len(slopes) - rank], n)


def _critical(n: int, error: float) -> int | None:
    """The smallest C with P(S >= C) <= `error` if there is no trend; None if there is none."""
    ways = _kendall_counts(n)
    most, total, upper = n * (n - 1) // 2, math.factorial(n), 0
    critical = None
    for value in range(most, -most - 1, -2):
        upper += ways[value]
        if upper > error * total:
            break
        critical = value
    return critical


def _kendall_counts(n: int) -> dict[int, int]:
    """In how many orders of n different values Kendall's S takes each value."""
    counts = {0: 1}
    for size in range(2, n + 1):
        longer: dict[int, int] = {}
        for value, ways in counts.items():
            for before in range(size):
                key = value + size - 1 - 2 * before
                longer[key] = longer.get(key, 0) + ways
        counts = longer
    return counts
