"""How late this machine wakes a sleeper, as cyclictest measures it.

Measured: a thread plans wake-ups at start + k x interval, absolute, sleeps until each, and notes how much later
than planned it got to read the clock. From: the planned instant, never the last wake-up, so that one late wake-up
does not move the ones behind it. Left out: what it takes to do something with being awake; instants that had
passed already when their turn came are counted late as well, and are not slept for. Known error: reading the clock,
well under a microsecond, and a sleeper that returns early, which none here does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

INTERVAL_S = 0.002
COUNT = 500


@dataclass(frozen=True, slots=True)
class TimerLatency:
    """Latency of wake-ups in microseconds. `resolution_ns`: the least step of the clock that was seen."""

    count: int
    interval_ms: float
    min_us: float
    avg_us: float
    p99_us: float
    max_us: float
    resolution_ns: float


def measure_wakeups(
    count: int = COUNT,
    interval_s: float = INTERVAL_S,
    *,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> TimerLatency:
    """`count` wake-ups, `interval_s` apart. Raises ValueError for less than one."""
    if count < 1 or interval_s <= 0:
        raise ValueError("at least one wake-up, and some time between two")
    start = now()
    late_us = []
    for k in range(1, count + 1):
        due = start + k * interval_s
        while (rest := due - now()) > 0:
            sleep(rest)
        late_us.append((now() - due) * 1e6)
    late_us.sort()
    return TimerLatency(
        count=count,
        interval_ms=interval_s * 1e3,
        min_us=late_us[0],
        avg_us=math.fsum(late_us) / count,
        p99_us=late_us[math.ceil(0.99 * count) - 1],
        max_us=late_us[-1],
        resolution_ns=clock_step_ns(now),
    )


def clock_step_ns(now: Callable[[], float] = time.perf_counter, tries: int = 200) -> float:
    """The least time between two different readings of the clock, in nanoseconds."""
    least = math.inf
    for _ in range(tries):
        before = now()
        while (after := now()) == before:
            pass
        least = min(least, after - before)
    return least * 1e9
