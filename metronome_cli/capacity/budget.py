"""The wall time of a search: how much is left, and what its next parts would take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

AUTO_BUDGET_S = 40.0  # for frames of 80 ms and shorter; in proportion for longer ones
AUTO_PERIOD_S = 0.08


class Budget:
    """Wall time since `began_s` (time.perf_counter) against `given_s`; None: as many seconds as suit the period."""

    def __init__(self, began_s: float, period_s: float, given_s: float | None) -> None:
        self._began_s = began_s
        self.total_s = given_s or AUTO_BUDGET_S * max(1.0, period_s / AUTO_PERIOD_S)
        self._look_s = 0.0
        self._confirmation_s = 0.0

    def affords(self, *, looks: int = 0, confirmations: float = 0) -> bool:
        """Whether so many more end within the budget, as long as those before took."""
        ahead_s = looks * self._look_s + confirmations * self._confirmation_s
        return time.perf_counter() - self._began_s + ahead_s <= self.total_s

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Time the short look that is taken inside."""
        began_s = time.perf_counter()
        yield
        self._look_s = time.perf_counter() - began_s

    def expect(self, times_as_long: float) -> None:
        """A confirmation will take so many times as long as the last look."""
        self._confirmation_s = times_as_long * self._look_s

    @contextmanager
    def confirming(self) -> Iterator[None]:
        """Time what is done inside; one that failed early says nothing of how long the next takes."""
        began_s = time.perf_counter()
        yield
        self._confirmation_s = max(self._confirmation_s, time.perf_counter() - began_s)
