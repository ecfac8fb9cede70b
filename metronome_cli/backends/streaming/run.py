"""A trial with sessions that run by themselves, in real time: on vLLM's engine, or on a server over the network.

The sessions live in event loops, in this process or in workers, and their events are taken here, in the thread that
calls. So where they live does not change what is counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from metronome_cli.backends.interface import BackendStats, RunSetup
from metronome_cli.backends.streaming.period_batcher import PeriodBatcher
from metronome_cli.core.clock import RealClock
from metronome_cli.core.errors import EngineError
from metronome_cli.core.session import (
    FrameGivenUp,
    FrameResult,
    FrameSent,
    HostEvent,
    SessionEnded,
    SessionSpec,
    SessionStarted,
)
from metronome_cli.core.types import SessionRefused

NAP_S = 0.005  # small portions: while this thread counts, the sessions may have to wait for it


class SessionHost(Protocol):
    """Where some of the sessions live."""

    @property
    def lost(self) -> str | None:
        """Why they cannot be reached any more."""

    def open(self, session: SessionSpec) -> None:
        """Start a session; whether it becomes ready is an event."""

    def begin(self, at_s: float) -> None:
        """Time 0 is at that instant of the clock so far; sessions that are ready send audio from now on."""

    def close_session(self, index: int) -> None:
        """End that session; its end is an event."""

    def drop(self, index: int) -> None:
        """Its end is known."""

    def poll(self, take: Callable[[HostEvent], None]) -> None:
        """Hand over every event that has come."""

    def horizon_s(self) -> float:
        """No frame due before this instant can still be an event after the next `poll`."""

    def start_closing(self) -> None:
        """End every session; returns at once."""

    def close(self) -> None:
        """Wait until that is done. A last `poll` brings the ends."""


class Monitor(Protocol):
    """What shows the state of the system under test."""

    def begin(self) -> None:
        """The trial begins: what was seen before was not its own."""

    def take(self, event: HostEvent) -> None:
        """Look at one event of a session."""

    def stats(self) -> BackendStats:
        """What is known now, and after `close`."""

    def close(self) -> None:
        """The sessions are gone. Raises EngineError if the system under test is, too."""


class StreamingRun:
    """Implements `BackendRun` on session hosts."""

    def __init__(
        self,
        setup: RunSetup,
        hosts: Sequence[SessionHost],
        monitor: Monitor,
        clock: RealClock,
    ) -> None:
        self.clock = clock
        self.hosts = hosts
        self.monitor = monitor
        self._setup = setup
        self._batches = PeriodBatcher(setup.profile.frame.period_s)
        self._open: dict[int, SessionHost] = {}  # in order of opening
        self._ready: set[int] = set()
        self._rejected = False
        self._context_filled = False
        self._failure: str | None = None  # of the engine
        self._closing = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def lost(self) -> str | None:
        """Why a part of the sessions cannot be reached any more."""
        return next((host.lost for host in self.hosts if host.lost is not None), None)

    def open(self, session: SessionSpec) -> None:
        if self._rejected:
            raise SessionRefused("slots", "the server takes no more sessions")
        if len(self._open) >= self._setup.slots:
            raise SessionRefused("slots", f"no slot is free of {self._setup.slots}")
        host = self.hosts[session.index % len(self.hosts)]
        self._open[session.index] = host
        host.open(session)

    def begin(self) -> None:
        while len(self._open) > len(self._ready) and not self._setup.stop() and not self.lost:
            self._poll()
            self._raise_failure()
            time.sleep(NAP_S)
        self.monitor.begin()
        at_s = self.clock.now()
        self.clock.start()
        for host in self.hosts:
            host.begin(at_s)

    def run_until(self, t_s: float) -> None:
        while not self._setup.stop():
            self._collect()
            self._raise_failure()
            rest_s = t_s - self.clock.now()
            if rest_s <= 0 or self._finished():
                return
            time.sleep(min(rest_s, NAP_S))

    def _finished(self) -> bool:
        """Whether no session is open, and every result of one is counted."""
        return not self._open and not len(self._batches)

    def _collect(self, *, final: bool = False) -> None:
        horizon_s = math.inf if final else min((host.horizon_s() for host in self.hosts), default=math.inf)
        self._poll()
        for batch in self._batches.complete(horizon_s if final else min(horizon_s, self.clock.now())):
            self._setup.record(batch)

    def _poll(self) -> None:
        for host in self.hosts:
            host.poll(self._take)

    def _take(self, event: HostEvent) -> None:
        self.monitor.take(event)
        if isinstance(event, FrameResult):
            self._batches.add(event)
        elif isinstance(event, FrameSent):
            self._batches.add_sent(event)
        elif isinstance(event, SessionEnded):
            self._end(event)
        elif not isinstance(event, FrameGivenUp):
            if isinstance(event, SessionStarted):
                self._ready.add(event.session)
            self._setup.record(event)

    def _end(self, event: SessionEnded) -> None:
        """A session is over, unless that is known; what it counted counts in any case."""
        if self._closing and event.reason == "shed":
            event = replace(event, reason="completed")
        host = self._open.pop(event.session, None)
        if host is not None:
            host.drop(event.session)
            self._ready.discard(event.session)
            self._rejected |= event.reason in ("rejected", "queue_timeout")
            self._context_filled |= event.reason == "context_limit"
            if event.reason == "engine_error" and self._failure is None:
                self._failure = event.detail
        self._setup.record(event if event.at_s is not None else replace(event, at_s=self.clock.now()))

    def _raise_failure(self) -> None:
        """An engine that died because a session filled its context is a finding; any other death is an error."""
        if self._failure is not None and not self._context_filled and not self._setup.stop():
            raise EngineError(self._failure)

    def close_newest(self, count: int) -> None:
        for index in list(self._open)[::-1][: max(0, count)]:
            self._open[index].close_session(index)
            self._end(SessionEnded(index, "shed"))

    def stats(self) -> BackendStats:
        return replace(self.monitor.stats(), generator_lost=self.lost)

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        try:
            for host in self.hosts:
                host.start_closing()
            for host in self.hosts:
                host.close()
        finally:
            self._collect(final=True)
            for index in list(self._open):  # those that never got to run
                self._end(SessionEnded(index, "completed"))
            self.monitor.close()
