"""Stalls: times in which this process was not scheduled, so that they do not count as a slow model.

What: a stall is a time in which no thread of the process ran, because the process was stopped (SIGSTOP, a debugger, a
paused virtual machine) or got no core. A thread samples the clocks every 50 ms. Code that records a batch samples them
too, so a stall is known before the batch is judged.
Formula: two samples more than 0.5 s apart, between which the process used the processor for less than half of the time.
During a slow step the thread still samples or the processor is busy, so a slow step is not a stall.
Left out: sleep of the machine that also stops the monotonic clock, since nothing is measured then.
Known error: a stall shorter than 0.5 s is not seen; the length is too long by up to one sampling interval.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

BEAT_S = 0.05
STILL_S = 0.5
BUSY_SHARE = 0.5  # of the time between two samples; with more processor time it is not a stall


class StallDetector:
    """Samples the clocks in its own thread while it is open. `still_s`: total length of the stalls so far, seconds."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        used: Callable[[], float] = time.process_time,
    ) -> None:
        self.still_s = 0.0
        self._clock = clock
        self._used = used  # seconds of processor time, all threads together
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._last = clock(), used()

    def beat(self) -> float:
        """Sample the clocks; return `still_s`, including a stall that has just ended."""
        with self._lock:
            now, used = self._clock(), self._used()
            gap_s, used_s = now - self._last[0], used - self._last[1]
            if gap_s > STILL_S and used_s < BUSY_SHARE * gap_s:
                self.still_s += gap_s
            self._last = now, used
            return self.still_s

    def __enter__(self) -> StallDetector:
        self.beat()
        self.still_s = 0.0
        self._thread = threading.Thread(target=self._run, name="stall-detector", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(BEAT_S):
            self.beat()


class Still:
    """A stall detector that never finds a stall, for simulated clocks."""

    still_s = 0.0

    def beat(self) -> float:
        """Return 0."""
        return 0.0
