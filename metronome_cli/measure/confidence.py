"""How many engine steps a verdict needs, and what their count allows to conclude.

Frames of one batch share a step, so a step is the unit: it is *bad* when any of its frames broke the bound.
With k bad steps of n, the true share p of bad steps has the exact (Clopper-Pearson) one-sided bounds

    upper: P(X <= k | p) = 1 - confidence        lower: P(X >= k | p) = 1 - confidence

so "p99 holds" is proved when upper <= 1 %, refuted when lower > 1 %, and open in between. With k = 0 the upper
bound is 1 - (1 - confidence)^(1/n): at 99 % confidence p99 needs 459 steps and p99.9 needs 4,603.

Steps of a loaded server are not quite independent (a late one delays the next), which makes the bounds somewhat
too narrow; a window that drifts is caught separately (measure/verdict.py) and never passes.
Source: Clopper and Pearson, Biometrika 26 (1934).
"""

from __future__ import annotations

import math

REPEATED = 10  # each evaluation of several is held to this part of the error


def batches_needed(share: float, confidence: float = 0.99) -> int:
    """Steps without one bad that prove the bad share is at most `share` (0..1)."""
    if not 0 < share < 1:
        return 1
    return math.ceil(math.log(1 - confidence) / math.log1p(-share))


def upper_bound(bad: float, total: float, confidence: float = 0.99) -> float:
    """One-sided upper bound of the share of bad steps; 1.0 without data."""
    if total <= 0 or bad >= total:
        return 1.0
    from scipy.special import betaincinv

    return float(betaincinv(bad + 1, total - bad, confidence))


def lower_bound(bad: float, total: float, confidence: float = 0.99) -> float:
    """One-sided lower bound of the share of bad steps; 0.0 without data."""
    if total <= 0 or bad <= 0:
        return 0.0
    from scipy.special import betaincinv

    return float(betaincinv(bad, total - bad + 1, 1 - confidence))


def binomial_interval(hits: int, total: int, confidence: float = 0.90) -> tuple[float, float]:
    """Two-sided exact interval of a proportion."""
    one_sided = 1 - (1 - confidence) / 2
    return lower_bound(hits, total, one_sided), upper_bound(hits, total, one_sided)


def is_refuted(bad: float, batches: float, share: float, confidence: float) -> bool:
    """Whether `bad` of `batches` refute the bound. Evaluated repeatedly, so at a tenth of the error."""
    return lower_bound(bad, batches, 1 - (1 - confidence) / REPEATED) > share or (share == 0 and bad > 0)


def is_proved(bad: float, batches: float, share: float, confidence: float) -> bool:
    """Whether `bad` of `batches` prove the bound, in a trial that is evaluated repeatedly until they do.

    Without a bad frame there is one evaluation that counts: at the number of batches that the confidence asks for.
    With one the trial continues, so each further evaluation is held to a tenth of the error. At a true share of
    exactly the limit a pass then comes out in at most 1.1 % of trials at 99 % (tests/measure/test_coverage.py).
    """
    return upper_bound(bad, batches, confidence if bad == 0 else 1 - (1 - confidence) / REPEATED) <= share


def batches_to_settle(bad: float, batches: float, share: float, confidence: float) -> int:
    """Further good batches after which `bad` of all would prove the share."""
    low, high = 0, max(batches_needed(share, confidence), math.ceil(batches))
    while not is_proved(bad, batches + high, share, confidence) and high < 10**9:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if is_proved(bad, batches + middle, share, confidence):
            high = middle
        else:
            low = middle + 1
    return low
