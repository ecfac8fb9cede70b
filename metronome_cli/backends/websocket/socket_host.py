"""Sessions of one process. An event-loop thread owns their sockets; events are queued for the main thread.

A trial has one host in its own process, or several in workers; session i belongs to host i mod their number. Garbage
collection would stop all sessions for as long as it takes to look at every object, so the objects that exist when
audio begins are excluded from it.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from functools import partial

from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.backends.streaming.local_host import LocalHost
from metronome_cli.backends.streaming.pacing import Pacing
from metronome_cli.backends.websocket.endpoint import Endpoint
from metronome_cli.backends.websocket.message_cache import EncodedLoop
from metronome_cli.backends.websocket.session import HostContext, WebsocketSession
from metronome_cli.backends.websocket.timers import TimerQueue
from metronome_cli.core.session import SessionSpec
from metronome_cli.load.misbehaving import MisbehavingSessions
from metronome_cli.load.script import Script
from metronome_cli.load.trace import LoopedAudio


@dataclass(frozen=True, slots=True)
class HostSetup:
    """What a host needs to know, in this process or in a worker.

    `zero_s`: time 0 of the trial on this process's `time.perf_counter`; `loop`: the recording in Opus, if the protocol
    carries it.
    """

    endpoint: Endpoint
    audio: LoopedAudio
    pacing: Pacing
    zero_s: float
    loop: EncodedLoop | None = None
    script: Script | None = None
    misbehaving: MisbehavingSessions = field(default_factory=MisbehavingSessions)


@dataclass(slots=True)
class HostClock:
    """The trial clock in the process of a host."""

    zero_s: float

    def now(self) -> float:
        """Seconds since time 0."""
        return time.perf_counter() - self.zero_s


class SocketHost(LocalHost[WebsocketSession]):
    """Sessions of this process; an event-loop thread owns their sockets."""

    def __init__(self, setup: HostSetup) -> None:
        super().__init__(EventLoopThread())
        self.clock = HostClock(setup.zero_s)
        self._audio = setup.audio
        self._script = setup.script
        self._misbehaving = setup.misbehaving
        now = self.clock.now
        self._shared = HostContext(
            setup.endpoint, setup.pacing, now, self.inbox.append, TimerQueue(now), loop=setup.loop
        )
        self._began: tuple[float, float] | None = None  # wall, processor

    def open(self, session: SessionSpec) -> None:
        index = session.index
        opened = WebsocketSession(
            index,
            self._shared,
            self._audio.stream(index),
            phase_s=self._audio.phase_s(index),
            behaviour=self._misbehaving.behaviour(index),
            planned=None
            if self._script is None
            else partial(self._script.events, index, self._audio.start(index)),
            lifetime_s=session.lifetime_s,
        )
        self.add(index, opened, opened.run())

    def begin(self, at_s: float) -> None:
        if self._began is None:
            gc.collect()
            gc.freeze()
            self.clock.zero_s += at_s
            self._began = time.perf_counter(), time.process_time()
            self.loop.post(self._shared.open.set)

    def close(self) -> None:
        self.loop.close()
        if self._began is not None:
            gc.unfreeze()

    @property
    def cpu_share(self) -> float | None:
        """Processor time of this process since audio began, as a share of one core; None before that."""
        if self._began is None:
            return None
        wall_s, cpu_s = self._began
        return (time.process_time() - cpu_s) / max(1e-3, time.perf_counter() - wall_s)
