"""Sessions of one process: their sockets in a thread, their news in a box.

A run has one share in its own process, or several in workers; session i belongs to share i mod their number. Garbage
collection would stop all sessions at once for as long as it takes to look at everything that lives; what lives when
audio begins is taken out of its sight.
"""

from __future__ import annotations

import gc
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from metronome_cli.load.loop_thread import LoopThread
from metronome_cli.load.news import News
from metronome_cli.load.opus_loop import OpusLoop
from metronome_cli.load.population import StreamSource
from metronome_cli.load.wheel import Wheel
from metronome_cli.load.wire import Beat, Hall, WireSession
from metronome_cli.targets.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Order:
    """What a share needs to know. `zero_s`: time 0 of the run on this process's `time.perf_counter`. `loop`: the
    recording in Opus, where the protocol carries it.
    """

    endpoint: Endpoint
    streams: StreamSource
    beat: Beat
    zero_s: float
    loop: OpusLoop | None = None

    def now(self) -> float:
        """The run's clock."""
        return time.perf_counter() - self.zero_s


class ShareLike(Protocol):
    """Some of the sessions, wherever they are."""

    @property
    def lost(self) -> str | None:
        """Why they cannot be reached any more."""

    def open(self, index: int, lifetime_s: float) -> None:
        """Let a caller knock."""

    def hang_up(self, index: int) -> None:
        """End that session; its end is news."""

    def forget(self, index: int) -> None:
        """Its end is known."""

    def begin(self) -> None:
        """Who is seated speaks, from now on."""

    def poll(self, take: Callable[[News], None]) -> None:
        """Whatever has come is taken."""

    def horizon_s(self) -> float:
        """No frame due before this instant can still be news after the next `poll`."""

    def start_closing(self) -> None:
        """End every session; returns at once."""

    def close(self) -> None:
        """Wait until that is done. A last `poll` brings the ends."""

    @property
    def cpu_share(self) -> float | None:
        """Processor time of its process since audio began, as a share of one core; None before that."""


class Share:
    """Those in this process."""

    def __init__(self, order: Order) -> None:
        self.lost: str | None = None
        self.loop = LoopThread()
        self.inbox: deque[News] = deque()
        self._streams = order.streams
        self._now = order.now
        self._hall = Hall(
            order.endpoint, order.beat, order.now, self.inbox.append, Wheel(order.now), loop=order.loop
        )
        self._sessions: dict[int, WireSession] = {}
        self._cancel: dict[int, Callable[[], None]] = {}
        self._began: tuple[float, float] | None = None  # wall, processor

    def open(self, index: int, lifetime_s: float) -> None:
        session = WireSession(
            index,
            self._hall,
            self._streams.stream(index),
            phase_s=self._streams.phase_s(index),
            lifetime_s=lifetime_s,
        )
        self._sessions[index] = session
        self._cancel[index] = self.loop.spawn(session.live())

    def hang_up(self, index: int) -> None:
        if index in self._cancel:
            self._cancel[index]()

    def begin(self) -> None:
        if self._began is None:
            gc.collect()
            gc.freeze()
            self._began = time.perf_counter(), time.process_time()
            self.loop.post(self._hall.open.set)

    def poll(self, take: Callable[[News], None], most: int | None = None) -> None:
        there = len(self.inbox)
        for _ in range(there if most is None else min(there, most)):
            take(self.inbox.popleft())

    def forget(self, index: int) -> None:
        """Its end is known."""
        self._sessions.pop(index, None)
        self._cancel.pop(index, None)

    def horizon_s(self) -> float:
        return min((session.horizon_s for session in list(self._sessions.values())), default=math.inf)

    def start_closing(self) -> None:
        for index in list(self._cancel):
            self.hang_up(index)

    def close(self) -> None:
        self.loop.close()
        if self._began is not None:
            gc.unfreeze()

    @property
    def cpu_share(self) -> float | None:
        if self._began is None:
            return None
        wall_s, cpu_s = self._began
        return (time.process_time() - cpu_s) / max(1e-3, time.perf_counter() - wall_s)
