"""Acts at planned instants: one heap for all sessions, one timer of the event loop.

A task a session would cost a future, a timer and a wake-up for each frame. Known error: the loop's timer is as fine
as a millisecond, and an act comes late by what the loop was doing when it was due.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable

AT_ONCE = 64  # acts in one turn, and
TURN_S = 0.005  # how long it may last: more would keep the loop from reading


class TimerQueue:
    """Belongs to one event loop. `now` is the run's clock, seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._armed_s = math.inf
        self._timer: asyncio.Handle | None = None

    def at(self, instant_s: float, act: Callable[[], None]) -> None:
        """Do it then; an instant that has passed is soon."""
        heapq.heappush(self._waiting, (instant_s, next(self._order), act))
        if instant_s < self._armed_s:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._armed_s = self._waiting[0][0]
        rest = self._armed_s - self._now()
        self._timer = loop.call_later(rest, self._turn) if rest > 0 else loop.call_soon(self._turn)

    def _run(self, act: Callable[[], None]) -> None:
        """Do it. What it raises is the event loop's to report, and stops no other act."""
        try:
            act()
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a timer's act failed", "exception": error}
            )

    def _turn(self) -> None:
        self._armed_s = -math.inf  # nothing arms during the turn
        waiting, now = self._waiting, self._now()
        until = now + TURN_S
        for _ in range(AT_ONCE):
            if not waiting or waiting[0][0] > now or now > until:
                break
            self._run(heapq.heappop(waiting)[2])
            now = self._now()
        self._armed_s, self._timer = math.inf, None
        if waiting:
            self._arm()
