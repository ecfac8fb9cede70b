"""Callbacks at planned times: one heap for all sessions, one timer of the event loop.

A task per session would cost a future, a timer and a wake-up per frame. Known error: the loop's timer has a resolution
of 1 ms, and a callback is delayed while the loop is busy.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable

MAX_PER_TURN = 64  # callbacks in one turn of the loop
TURN_S = 0.005  # longest turn; a longer one would delay reading


class TimerQueue:
    """Timer queue of one event loop. `now` is the trial clock, s."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._timer_at_s = math.inf
        self._timer: asyncio.Handle | None = None

    def at(self, instant_s: float, act: Callable[[], None]) -> None:
        """Call `act` at that time, or soon if it has passed."""
        heapq.heappush(self._waiting, (instant_s, next(self._order), act))
        if instant_s < self._timer_at_s:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer_at_s = self._waiting[0][0]
        rest = self._timer_at_s - self._now()
        self._timer = loop.call_later(rest, self._run_due) if rest > 0 else loop.call_soon(self._run_due)

    def _run(self, act: Callable[[], None]) -> None:
        """Call `act`. An exception goes to the loop's exception handler and stops no other callback."""
        try:
            act()
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a timer callback failed", "exception": error}
            )

    def _run_due(self) -> None:
        self._timer_at_s = -math.inf  # `at` sets no timer during the turn
        waiting, now = self._waiting, self._now()
        until = now + TURN_S
        for _ in range(MAX_PER_TURN):
            if not waiting or waiting[0][0] > now or now > until:
                break
            self._run(heapq.heappop(waiting)[2])
            now = self._now()
        self._timer_at_s, self._timer = math.inf, None
        if waiting:
            self._set_timer()
