"""Whether this process ran at all: a suspended program is not a slow model.

What: stretches in which no thread of the process ran, though one wanted to every 50 ms. It was stopped (SIGSTOP, a
debugger, a paused virtual machine) or kept from every core. A thread beats; whoever measures beats too, before it
judges, so that a stretch is known no later than the step that it fell into.
Formula: two beats more than half a second apart, in which the process used the processor for less than half of the
time. A slow step either leaves the thread to beat or keeps the processor busy, so it is no such stretch.
Left out: a machine that sleeps while its monotonic clock stands still, since nothing is measured meanwhile.
Known error: a stretch shorter than half a second is not seen; the length is too long by up to one beat.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

BEAT_S = 0.05
STILL_S = 0.5
BUSY_SHARE = 0.5  # of a stretch: a process that computed for longer was not standing still


class StallDetector:
    """Beats in a thread of its own while it is open. `still_s`: seconds in which the process stood still so far."""

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
        """The process runs now; `still_s` with the stretch that ended, if one did."""
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
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
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
    """A pulse that was never taken: nothing is known of the process, and nothing is held against it."""

    still_s = 0.0

    def beat(self) -> float:
        """Nothing is known."""
        return 0.0
