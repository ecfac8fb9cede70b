"""A trial with streaming sessions in real time, on vLLM's engine or on a server over the network.

The sessions run in event loops, in this process or in workers. Their events are recorded in the calling thread, so the
counts do not depend on where a session runs.
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

NAP_S = 0.005  # a short time, since sessions in this process wait while this thread counts


class SessionHost(Protocol):
    """Holds a part of the sessions of a run."""

    @property
    def lost(self) -> str | None:
        """Why the sessions of this host are lost; None: they are not."""

    def open(self, session: SessionSpec) -> None:
        """Start a session. An event reports when it is ready."""

    def begin(self, at_s: float) -> None:
        """Set time 0 to that instant of the clock, and start the audio of all sessions that are ready."""

    def close_session(self, index: int) -> None:
        """End a session. An event reports its end."""

    def drop(self, index: int) -> None:
        """Forget a session whose end has been reported."""

    def poll(self, take: Callable[[HostEvent], None]) -> None:
        """Pass all queued events to `take`."""

    def horizon_s(self) -> float:
        """Return the instant before which every due frame has been reported once `poll` was called again."""

    def start_closing(self) -> None:
        """End every session; returns at once."""

    def close(self) -> None:
        """Wait until all sessions have ended. A last `poll` returns their end events."""


class Monitor(Protocol):
    """Reads the state of the system under test."""

    def begin(self) -> None:
        """Begin a trial: discard all earlier readings."""

    def take(self, event: HostEvent) -> None:
        """Take note of one session event."""

    def stats(self) -> BackendStats:
        """Return the current state; also valid after `close`."""

    def close(self) -> None:
        """Stop after all sessions ended. Raises EngineError if the system under test is no longer available."""


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
        """Why a part of the sessions is lost; None: none is."""
        return next((host.lost for host in self.hosts if host.lost is not None), None)

    def open(self, session: SessionSpec) -> None:
        if self._rejected:
            raise SessionRefused("slots", "the server accepts no more sessions")
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
        """True if no session is open and all results are counted."""
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
        """Record the end of a session once. Its message counts are added in any case."""
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
        """Raise EngineError if the engine died, unless a session filled its context: that is a result of the trial."""
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
            for index in list(self._open):  # sessions that were never run
                self._end(SessionEnded(index, "completed"))
            self.monitor.close()
