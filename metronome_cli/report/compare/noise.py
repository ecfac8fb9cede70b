"""How far a change stands out from the noise of repeats.

Each side's value is the mean of its reports. The change is new - base; its 95 % interval is Welch's: the
standard error is sqrt(s1^2/n1 + s2^2/n2) with the sample standard deviations s, and the quantile is
Student's at the Welch-Satterthwaite degrees of freedom. Where one side has a single report, it is taken
to be as noisy as the other; where both have, the noise is not known and there is no interval. Known
error: a percentile such as p99 is skewed, so with few repeats the interval is rough; and repeats made at
once on one machine do not show how the machine changes from day to day.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

CONFIDENCE = 0.95


def interval(base: Sequence[float], new: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of mean(new) - mean(base); None where the noise is not known."""
    change = statistics.fmean(new) - statistics.fmean(base)
    spread = _standard_error(base, new)
    if spread is None:
        return None
    error, freedom = spread
    if error == 0:
        return change, change
    from scipy.special import stdtrit

    reach = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    return change - reach, change + reach


def _standard_error(base: Sequence[float], new: Sequence[float]) -> tuple[float, float] | None:
    """The change's standard error and its degrees of freedom."""
    known = [statistics.variance(side) if len(side) > 1 else None for side in (base, new)]
    variances = [
        one if one is not None else other for one, other in ((known[0], known[1]), (known[1], known[0]))
    ]
    if variances[0] is None or variances[1] is None:
        return None
    if None in known:
        several = max(len(base), len(new))
        return math.sqrt(variances[0] * (1 / len(base) + 1 / len(new))), several - 1
    parts = [variances[0] / len(base), variances[1] / len(new)]
    total = sum(parts)
    if total == 0:
        return 0.0, 1.0
    freedom = total**2 / (parts[0] ** 2 / (len(base) - 1) + parts[1] ** 2 / (len(new) - 1))
    return math.sqrt(total), freedom
