"""Erlang's loss formula: the share of arrivals that find all servers busy.

Arrivals are a Poisson process, stay for a time of mean h and any distribution, and are rejected if all n servers are
busy. With an offered load of a = arrivals per second x h erlangs,

    B(0) = 1,    1 / B(n) = 1 + (n / a) / B(n - 1)

so the inverse is a sum of growing terms with one sign: no cancellation, and in logarithms no overflow for
any n. Source: A. K. Erlang (1917); recursion as in Jagerman, Bell System Technical Journal 53 (1974).
"""

from __future__ import annotations

import math

import numpy as np

from metronome_cli.forecast.speaking_time import Reals

_MOST = 50_000_000  # servers


def log_blocking(offered: float, servers: int) -> float:
    """ln B(servers) for `offered` erlangs; -inf for no load with servers."""
    if offered < 0 or servers < 0 or not math.isfinite(offered):
        raise ValueError("offered load and servers must not be negative")
    if offered == 0:
        return 0.0 if servers == 0 else -math.inf
    # 1/B(n) = sum_k n! / (n-k)! a^-k
    return -float(_log_sum(_log_terms(offered, servers)))


def blocking(offered: float, servers: int) -> float:
    """Return B(servers), the share of arrivals rejected, 0 to 1."""
    return math.exp(log_blocking(offered, servers))


def servers_for(offered: float, target: float) -> int:
    """Fewest servers with a blocking of at most `target` (0..1, above 0)."""
    if not 0 < target <= 1:
        raise ValueError("target blocking must lie in (0, 1]")
    high = max(1, math.ceil(offered))
    while blocking(offered, high) > target:
        high *= 2
        if high > _MOST:
            raise ValueError("load beyond any fleet")
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if blocking(offered, middle) <= target else (middle, high)
    return 0 if blocking(offered, 0) <= target else high


def _log_terms(offered: float, servers: int) -> Reals:
    """ln of n (n-1) ... (n-k+1) / a^k for the k that count, of 0 .. n.

    They peak at k = n - a and fall off on both sides at least as exp(-j^2 / 2a): beyond the width they are less than
    e^-72 of the largest.
    """
    peak, width = max(0.0, servers - offered), 12 * math.sqrt(offered) + 100
    first, last = max(0, math.floor(peak - width)), min(servers, math.ceil(peak + width))
    before = math.lgamma(servers + 1) - math.lgamma(servers - first + 1) - first * math.log(offered)
    factors = np.log(np.arange(servers - first, servers - last, -1, dtype=np.float64) / offered)
    return before + np.concatenate((np.zeros(1), np.cumsum(factors)))


def _log_sum(terms: Reals) -> float:
    peak = float(terms.max())
    return peak + math.log(float(np.exp(terms - peak).sum()))
