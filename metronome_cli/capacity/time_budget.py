"""The wall time of a search: how much is left."""

from __future__ import annotations

import time
from collections.abc import Callable

DEFAULT_S = 40.0  # for frames of 80 ms and shorter; in proportion for longer ones
DEFAULT_PERIOD_S = 0.08


class TimeBudget:
    """Time since `began_s` on the clock `now` against `given_s`; None: as many seconds as suit the period."""

    def __init__(
        self,
        began_s: float,
        period_s: float,
        given_s: float | None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._began_s, self._now = began_s, now
        self.total_s = given_s or DEFAULT_S * max(1.0, period_s / DEFAULT_PERIOD_S)

    @property
    def left_s(self) -> float:
        """Negative once it is spent."""
        return self.total_s - (self._now() - self._began_s)
