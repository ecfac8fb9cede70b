"""Two clocks, one code path.

`real` waits: a due time is met by sleeping until it. `virtual` jumps to the due time and adds each step's
*measured* compute time, so the engine's work and the memory trajectory are the same while idle time costs
nothing. Both count from `start` and never go back; wall clock is used for stamps only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, Protocol

ClockName = Literal["real", "virtual"]
_NAP_S = 0.05  # longest sleep between two checks of the stop request


class Clock(Protocol):
    """The run's time, in seconds since it began."""

    name: ClockName

    def start(self) -> None:
        """Time 0 is now."""

    def now(self) -> float:
        """Now."""

    def wait_until(self, instant_s: float, stopped: Callable[[], bool]) -> None:
        """Come back at that instant, or soon after `stopped()` turns true."""

    def spent(self, seconds: float) -> None:
        """Work that took `seconds` of compute has just been done."""


class RealClock:
    """Monotonic time."""

    name: ClockName = "real"

    def __init__(self) -> None:
        self.start()

    @property
    def zero_s(self) -> float:
        """Time 0 on `time.perf_counter`."""
        return self._start

    def start(self) -> None:
        self._start = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._start

    def wait_until(self, instant_s: float, stopped: Callable[[], bool]) -> None:
        while (rest := instant_s - self.now()) > 0 and not stopped():
            time.sleep(min(rest, _NAP_S))

    def spent(self, seconds: float) -> None:
        """Already passed by itself."""


class VirtualClock:
    """Jumps over idle time; moves on by what the work took."""

    name: ClockName = "virtual"

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def wait_until(self, instant_s: float, stopped: Callable[[], bool]) -> None:
        self._now = max(self._now, instant_s)

    def spent(self, seconds: float) -> None:
        self._now += seconds


def make_clock(name: ClockName) -> Clock:
    """A fresh clock at 0."""
    return RealClock() if name == "real" else VirtualClock()
