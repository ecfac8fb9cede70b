"""Drives sessions that live by themselves, in real time: the shape of backends/in_process/driver.py.

They live in an event loop of this process, or in workers, and tell what happens to them
(core/session_events.py). That is taken
here, in the caller's thread, into the same ledger that the in-process driver fills, step by step
(backends/streaming/period_batcher.py); so
where they live changes nothing in how is counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from metronome_cli.backends.streaming.period_batcher import PeriodBatcher
from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import RealClock
from metronome_cli.core.session_events import FrameSent, SessionEnded, SessionEvent, SessionStarted
from metronome_cli.core.types import EndReason
from metronome_cli.load.door import Door, Note
from metronome_cli.measure.ledger import FrameRecord, Ledger
from metronome_cli.measure.stall import StallDetector, Standstill, Still

NAP_S = 0.005  # small portions: while this thread counts, the sessions may have to wait for it


class SessionHost(Protocol):
    """Where some of the sessions live."""

    def hang_up(self, index: int) -> None:
        """End that session; its end is news."""

    def forget(self, index: int) -> None:
        """Its end is known."""

    def poll(self, take: Callable[[SessionEvent], None]) -> None:
        """Whatever has come is taken."""

    def horizon_s(self) -> float:
        """No frame due before this instant can still be news after the next `poll`."""


class LivePopulation(Door):
    """Callers, wherever they live; `hosts` is set by whoever knows where."""

    hosts: Sequence[SessionHost]

    def __init__(self, profile: Profile, note: Note | None = None) -> None:
        super().__init__(note)
        self.profile = profile
        self.clock = RealClock()
        self.seated: set[int] = set()
        self._open: dict[int, SessionHost] = {}  # in order of opening

    def __len__(self) -> int:
        return len(self._open)

    @property
    def preparing(self) -> int:
        """Those who have no seat yet: in the handshake, or while their past is filled in."""
        return len(self._open) - len(self.seated)

    def close_newest(self, count: int, reason: EndReason = "shed") -> None:
        """Send away the callers that came last."""
        for index in list(self._open)[::-1][: max(0, count)]:
            self._open[index].hang_up(index)
            self.forget(index, reason)

    def forget(self, index: int, reason: EndReason) -> bool:
        """That session is over; False when that was known."""
        host = self._open.pop(index, None)
        if host is None:
            return False
        host.forget(index)
        self.seated.discard(index)
        self.ended[reason] += 1
        return True

    def horizon_s(self) -> float:
        """No frame due before this instant can still be answered."""
        return min((host.horizon_s() for host in self.hosts), default=math.inf)

    def poll(self, take: Callable[[SessionEvent], None]) -> None:
        """Whatever has come is taken."""
        for host in self.hosts:
            host.poll(take)


P = TypeVar("P", bound=LivePopulation)


class LiveDriver(Generic[P]):
    """One population, one ledger."""

    stage_occupancy: Mapping[str, float] = MappingProxyType({})  # further stages have no pool here
    recomputed_tokens = 0  # not stated

    def __init__(
        self,
        population: P,
        ledger: Ledger,
        stopped: Callable[[], bool] = lambda: False,
        pulse: StallDetector | Still | None = None,
    ) -> None:
        self.population = population
        self.clock = population.clock
        self.ledger = ledger
        self.stopped = stopped
        self.context_s: float | None = None  # when a session first filled the model's context
        self._steps = PeriodBatcher(population.profile.frame.period_s)
        self._standstill = Standstill(pulse)

    @property
    def lost_beat(self) -> int:
        return self.population.ended["fell_behind"]

    def run_until(self, instant_s: float) -> None:
        """Take what comes until that instant, or until nobody is left."""
        while not self.stopped():
            self._count()
            rest = instant_s - self.clock.now()
            if rest <= 0 or self._empty():
                return
            time.sleep(min(rest, NAP_S))

    def _empty(self) -> bool:
        return not len(self.population)

    def _count(self, final: bool = False) -> None:
        self._standstill.tell(self.ledger)
        horizon_s = math.inf if final else self.population.horizon_s()
        self._take_news()
        self._steps.count(min(horizon_s, self.clock.now()), self.ledger)

    def _take_news(self) -> None:
        self.population.poll(self._take)

    def _take(self, news: SessionEvent) -> None:
        """What every such session tells."""
        if isinstance(news, FrameRecord):
            self._steps.answered(news)
        elif isinstance(news, FrameSent):
            self._steps.paced(news)
        elif isinstance(news, SessionStarted):
            self.population.seated.add(news.index)
        elif isinstance(news, SessionEnded):
            self._farewell(news, news.reason)

    def _farewell(self, news: SessionEnded, reason: EndReason) -> bool:
        """A session is over, and its streak with it; False when that was known."""
        self.ledger.forget(news.index)
        if reason == "context_limit" and self.context_s is None:
            self.context_s = self.clock.now()
        return self.population.forget(news.index, reason)
