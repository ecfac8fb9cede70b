"""Sessions of one process: their sockets in a thread, their news in a box.

A run has one share in its own process, or several in workers; session i belongs to share i mod their number. Garbage
collection would stop all sessions at once for as long as it takes to look at everything that lives; what lives when
audio begins is taken out of its sight.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import Protocol

from metronome_cli.backends.in_process.population import AudioSource
from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.backends.streaming.live import SessionHost
from metronome_cli.backends.streaming.local_host import LocalHost
from metronome_cli.backends.streaming.pacing import Pacing
from metronome_cli.backends.websocket.encoded_loop import EncodedLoop
from metronome_cli.backends.websocket.endpoint import Endpoint
from metronome_cli.backends.websocket.session import HostContext, WebsocketSession
from metronome_cli.backends.websocket.timers import TimerQueue


@dataclass(frozen=True, slots=True)
class HostSetup:
    """What a share needs to know. `zero_s`: time 0 of the run on this process's `time.perf_counter`. `loop`: the
    recording in Opus, where the protocol carries it.
    """

    endpoint: Endpoint
    streams: AudioSource
    beat: Pacing
    zero_s: float
    loop: EncodedLoop | None = None

    def now(self) -> float:
        """The run's clock."""
        return time.perf_counter() - self.zero_s


class ShareLike(SessionHost, Protocol):
    """Some of the sessions, wherever they are."""

    @property
    def lost(self) -> str | None:
        """Why they cannot be reached any more."""

    def open(self, index: int, lifetime_s: float) -> None:
        """Let a caller knock."""

    def begin(self) -> None:
        """Who is seated speaks, from now on."""

    def start_closing(self) -> None:
        """End every session; returns at once."""

    def close(self) -> None:
        """Wait until that is done. A last `poll` brings the ends."""

    @property
    def cpu_share(self) -> float | None:
        """Processor time of its process since audio began, as a share of one core; None before that."""


class SocketHost(LocalHost[WebsocketSession]):
    """Those in this process."""

    def __init__(self, order: HostSetup) -> None:
        super().__init__(EventLoopThread())
        self.lost: str | None = None
        self._streams = order.streams
        self._now = order.now
        self._hall = HostContext(
            order.endpoint, order.beat, order.now, self.inbox.append, TimerQueue(order.now), loop=order.loop
        )
        self._began: tuple[float, float] | None = None  # wall, processor

    def open(self, index: int, lifetime_s: float) -> None:
        session = WebsocketSession(
            index,
            self._hall,
            self._streams.stream(index),
            phase_s=self._streams.phase_s(index),
            lifetime_s=lifetime_s,
        )
        self.add(index, session, session.live())

    def begin(self) -> None:
        if self._began is None:
            gc.collect()
            gc.freeze()
            self._began = time.perf_counter(), time.process_time()
            self.loop.post(self._hall.open.set)

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
