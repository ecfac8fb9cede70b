"""Sessions on one vLLM engine, in the event loop of the engine."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from metronome_cli.backends.interface import RunSetup
from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.backends.streaming.local_host import LocalHost
from metronome_cli.backends.streaming.pacing import pacing_of
from metronome_cli.backends.vllm.engine import StreamingEngine
from metronome_cli.backends.vllm.session import VllmSession
from metronome_cli.core.clock import Clock
from metronome_cli.core.session import SessionSpec


class VllmHost(LocalHost[VllmSession]):
    """Implements `SessionHost`."""

    def __init__(self, engine: StreamingEngine, setup: RunSetup, clock: Clock, loop: EventLoopThread) -> None:
        super().__init__(loop)
        self._engine = engine
        self._setup = setup
        self._clock = clock
        self._gate = asyncio.Event()
        self._begun = False

    def open(self, session: SessionSpec) -> None:
        """Start a session. One that starts while others send audio has age 0, since prefilling its past would
        delay them.
        """
        if self._begun:
            session = replace(session, age_s=0.0)
        opened = VllmSession(
            session,
            self._engine,
            self._setup.profile,
            self._setup.workload,
            seed=self._setup.seed,
            give_up_s=pacing_of(self._setup.profile).give_up_s,
            now=self._clock.now,
            tell=self.inbox.append,
        )
        self.add(session.index, opened, opened.run(self._gate))

    def begin(self, at_s: float) -> None:
        self._begun = True
        self.loop.post(self._gate.set)

    def close(self) -> None:
        self.loop.cancel_all()
