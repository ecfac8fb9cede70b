"""A latency histogram of fixed size, whatever the length of the run.

Values are milliseconds in logarithmic buckets 0.25 % wide from 1 us to 1000 s, so a percentile is known within
0.125 % of itself; the maximum is exact. Percentile q is the smallest bucket that at least q of all values reach
(nearest rank). Memory: 8.3 k counters, about 65 KiB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_RATIO = 1.0025
_LOG_RATIO = math.log(_RATIO)
_LOW_MS = 1e-3
_BUCKETS = math.ceil(math.log(1e6 / _LOW_MS) / _LOG_RATIO) + 2


class LatencyHistogram:
    """Counts of milliseconds; percentiles are None while it is empty."""

    __slots__ = ("_counts", "max_ms", "sum_ms", "total")

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, dtype=np.int64)
        self.total = 0
        self.sum_ms = 0.0
        self.max_ms: float | None = None

    def add(self, value_ms: float) -> None:
        """Count one value; negative ones (answered before due) count as the lowest bucket."""
        index = 0 if value_ms <= _LOW_MS else 1 + int(math.log(value_ms / _LOW_MS) / _LOG_RATIO)
        self._counts[min(index, _BUCKETS - 1)] += 1
        self.total += 1
        self.sum_ms += value_ms
        self.max_ms = value_ms if self.max_ms is None else max(self.max_ms, value_ms)

    def above(self, value_ms: float) -> int:
        """How many values lie above this one, to the bucket."""
        index = 0 if value_ms <= _LOW_MS else 1 + int(math.log(value_ms / _LOW_MS) / _LOG_RATIO)
        return int(self._counts[index + 1 :].sum())

    def cumulative(self, bounds_ms: Sequence[float]) -> list[int]:
        """For each bound, how many values do not lie above it, to the bucket."""
        return [self.total - self.above(bound) for bound in bounds_ms]

    def percentile(self, q: float) -> float | None:
        """The value in milliseconds that a fraction q (0..1] of all values do not pass."""
        if self.total == 0 or self.max_ms is None:
            return None
        rank = max(1, math.ceil(q * self.total - 1e-9))
        index = int(np.searchsorted(np.cumsum(self._counts), rank))
        middle = _LOW_MS if index == 0 else _LOW_MS * _RATIO ** (index - 0.5)
        return min(middle, self.max_ms)
