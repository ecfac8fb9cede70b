"""Drives an engine that batches by itself (backends/streaming/live.py): sessions of backends/vllm/session.py,
in the engine's event loop.

The pool is full when a session was stuck while hardly a block was free; the instant is when it became so.
The generator's lateness is the time between a frame's planned instant and the one at which it was handed over.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from metronome_cli.backends.in_process.paced_session import Turns
from metronome_cli.backends.in_process.population import AudioSource
from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.backends.streaming.live import NAP_S, LiveDriver, LivePopulation
from metronome_cli.backends.streaming.local_host import LocalHost
from metronome_cli.backends.streaming.pacing import beat_of
from metronome_cli.backends.vllm.monitor import EngineMonitor
from metronome_cli.backends.vllm.session import Caller, VllmSession
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import EngineError
from metronome_cli.core.session_events import FrameGivenUp, SessionEnded, SessionEvent
from metronome_cli.core.types import EndReason, SessionRefused
from metronome_cli.load.arrivals import Arrival
from metronome_cli.load.door import Note
from metronome_cli.measure.ledger import Ledger
from metronome_cli.measure.stall import StallDetector, Still


class StreamPopulation(LivePopulation):
    """Callers on one engine."""

    def __init__(
        self,
        target: EngineMonitor,
        profile: Profile,
        streams: AudioSource,
        turns: Callable[[int], Turns],
        loop: EventLoopThread,
        seed: int = 0,
        note: Note | None = None,
    ) -> None:
        super().__init__(profile, note)
        self.target = target
        self.begun = False
        self._here: LocalHost[VllmSession] = LocalHost(loop)
        self.hosts = [self._here]
        self._streams = streams
        self._turns = turns
        self._seed = seed
        self._gate = asyncio.Event()

    def open(self, now_s: float, age_s: float = 0.0, lifetime_s: float = math.inf) -> None:
        """Let one more caller in. Raises SlotRefused.

        One who comes while others speak is new, whatever `age_s` says: filling in his past would hold them up.
        """
        age_s = 0.0 if self.begun else age_s
        index = self.knock(Arrival(now_s, age_s, lifetime_s))
        if len(self) >= self.target.seats:
            raise SessionRefused("slots", f"no seat is free of {self.target.seats}")
        caller = Caller(
            self._streams.stream(index),
            self._turns(index),
            self._streams.phase_s(index),
            age_s,
            lifetime_s,
            self._seed,
        )
        session = VllmSession(
            index,
            self.target.engine,
            self.profile,
            caller,
            give_up_s=beat_of(self.profile).give_up_s,
            now=self.clock.now,
            tell=self._here.inbox.append,
        )
        self._open[index] = self._here
        self._here.add(index, session, session.live(self._gate))

    def begin(self) -> None:
        """Whoever is seated speaks, from now on."""
        self.begun = True
        self._here.loop.post(self._gate.set)

    def sessions(self) -> list[VllmSession]:
        """The open ones, oldest first."""
        return self._here.sessions()


class StreamDriver(LiveDriver[StreamPopulation]):
    """One engine, one population, one ledger."""

    full_pool = "KV"

    def __init__(
        self,
        population: StreamPopulation,
        ledger: Ledger,
        stopped: Callable[[], bool] = lambda: False,
        pulse: StallDetector | Still | None = None,
    ) -> None:
        super().__init__(population, ledger, stopped, pulse)
        self.pool_full_s: float | None = None
        self._failure: str | None = None

    @property
    def preemptions(self) -> int:
        return self.population.target.gauge.preemptions

    @property
    def occupancy_max(self) -> float:
        return self.population.target.gauge.occupancy_max

    def seat(self, at_s: float, age_s: float = 0.0, lifetime_s: float = math.inf) -> None:
        """Let one caller in, who speaks as soon as the clock runs. Raises SlotRefused."""
        self.population.open(at_s, age_s, lifetime_s)

    def start(self) -> None:
        """Wait until everybody's past is filled in; then time 0 is now. Raises EngineError."""
        population = self.population
        while population.preparing and not self.stopped():
            self._take_news()
            self._look_for_failure()
            time.sleep(NAP_S)
        population.target.gauge.forget()
        self.clock.start()
        population.begin()

    def run_until(self, instant_s: float) -> None:
        """Take what comes until that instant, or until nobody is left. Raises EngineError."""
        if not self.population.begun:
            self.population.begin()
        super().run_until(instant_s)

    def _empty(self) -> bool:
        """What was told last is counted, too: nothing ends this driver but the last step."""
        return super()._empty() and not self._steps

    def _count(self, final: bool = False) -> None:
        super()._count(final)
        self._look_for_failure()

    def _look_for_failure(self) -> None:
        """An engine that died because a session filled its context is a finding; of any other death, raise."""
        if self._failure is not None and not self.population.ended["context_limit"] and not self.stopped():
            raise EngineError(self._failure)

    def _take(self, news: SessionEvent) -> None:
        super()._take(news)
        if isinstance(news, FrameGivenUp) and self.pool_full_s is None:
            self.pool_full_s = self.population.target.nearly_full_since(self.clock)

    def _farewell(self, news: SessionEnded, reason: EndReason) -> bool:
        if reason == "engine_error" and self._failure is None:
            self._failure = news.detail
        return super()._farewell(news, reason)
