"""Drives an engine that batches by itself, in real time: the shape of load/driver.py, sessions of load/conversation.py.

Sessions live in the engine's own event loop; their news are counted here, in the caller's thread, in the ledger that
every driver fills. The frames of all sessions that were due in one period make one step: the engine batches them, so
they are no independent evidence. A step is counted when no frame of it can be answered any more.

The pool is full when a session was stuck while hardly a block was free; the instant is when it became so.
The generator's lateness is the time between a frame's planned instant and the one at which it was handed over.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from metronome_cli.config.profile import Profile
from metronome_cli.engine.types import EndReason, SlotRefused
from metronome_cli.errors import EngineError
from metronome_cli.load.arrivals import Arrival
from metronome_cli.load.clock import RealClock
from metronome_cli.load.conversation import Caller, Conversation, Ended, News, Paced, Seated, Stuck
from metronome_cli.load.loop_thread import LoopThread
from metronome_cli.load.population import Note, StreamSource
from metronome_cli.load.session import Turns
from metronome_cli.measure.ledger import FrameRecord, Ledger
from metronome_cli.measure.pulse import Pulse, Still
from metronome_cli.targets.vllm.target import VllmTarget

_NAP_S = 0.005
GIVE_UP_PERIODS = 10
GIVE_UP_LEAST_S = 1.0


def give_up_s(profile: Profile) -> float:
    """How long nothing may come before a frame counts as empty."""
    return max(GIVE_UP_LEAST_S, GIVE_UP_PERIODS * profile.frame.period_s)


class StreamPopulation:
    """Callers on one engine."""

    def __init__(
        self,
        target: VllmTarget,
        profile: Profile,
        streams: StreamSource,
        turns: Callable[[int], Turns],
        loop: LoopThread,
        seed: int = 0,
        note: Note | None = None,
    ) -> None:
        self.target = target
        self.profile = profile
        self.ended: Counter[EndReason] = Counter()
        self.refused = 0
        self.clock = RealClock()
        self.inbox: deque[News] = deque()
        self.seated: set[int] = set()
        self.begun = False
        self._streams = streams
        self._turns = turns
        self._loop = loop
        self._seed = seed
        self._note = note
        self._gate = asyncio.Event()
        self._sessions: dict[int, Conversation] = {}
        self._cancel: dict[int, Callable[[], None]] = {}
        self._next_index = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def preparing(self) -> int:
        """Those whose past is still being filled in."""
        return len(self._sessions) - len(self.seated)

    def knock(self, arrival: Arrival) -> int:
        """A caller is at the door, whether he is let in or not: his index."""
        index = self._next_index
        self._next_index += 1
        if self._note is not None:
            self._note(index, arrival)
        return index

    def open(self, now_s: float, age_s: float = 0.0, lifetime_s: float = math.inf) -> Conversation:
        """Let one more caller in. Raises SlotRefused.

        One who comes while others speak is new, whatever `age_s` says: filling in his past would hold them up.
        """
        index = self.knock(Arrival(now_s, 0.0 if self.begun else age_s, lifetime_s))
        if len(self._sessions) >= self.target.seats:
            raise SlotRefused("slots", f"all {self.target.seats} seats are taken")
        caller = Caller(
            self._streams.stream(index),
            self._turns(index),
            self._streams.phase_s(index),
            0.0 if self.begun else age_s,
            lifetime_s,
            self._seed,
        )
        session = Conversation(
            index,
            self.target.engine,
            self.profile,
            caller,
            give_up_s=give_up_s(self.profile),
            now=self.clock.now,
            tell=self.inbox.append,
        )
        self._sessions[index] = session
        self._cancel[index] = self._loop.spawn(session.live(self._gate))
        return session

    def begin(self) -> None:
        """Whoever is seated speaks, from now on."""
        self.begun = True
        self._loop.post(self._gate.set)

    def close_newest(self, count: int, reason: EndReason = "shed") -> None:
        """Send away the callers that came last."""
        for index in list(self._sessions)[::-1][: max(0, count)]:
            self._cancel[index]()
            self.forget(index, reason)

    def forget(self, index: int, reason: EndReason) -> bool:
        """That session is over; False when that was known."""
        if self._sessions.pop(index, None) is None:
            return False
        del self._cancel[index]
        self.seated.discard(index)
        self.ended[reason] += 1
        return True

    def sessions(self) -> list[Conversation]:
        """The open ones, oldest first."""
        return list(self._sessions.values())

    def horizon_s(self) -> float:
        """No frame due before this instant can still be answered."""
        return min((session.horizon_s for session in self._sessions.values()), default=math.inf)


@dataclass(slots=True)
class _Step:
    records: list[FrameRecord] = field(default_factory=list)
    late_s: float = 0.0


class StreamDriver:
    """One engine, one population, one ledger."""

    recomputed_tokens = 0  # not stated
    full_pool = "KV"
    stage_occupancy: Mapping[str, float] = MappingProxyType({})  # further stages have no pool here

    def __init__(
        self,
        population: StreamPopulation,
        ledger: Ledger,
        stopped: Callable[[], bool] = lambda: False,
        pulse: Pulse | Still | None = None,
    ) -> None:
        self.population = population
        self.clock = population.clock
        self.ledger = ledger
        self.stopped = stopped
        self.pool_full_s: float | None = None
        self._period_s = population.profile.frame.period_s
        self._steps: dict[int, _Step] = {}
        self._failure: str | None = None
        self._pulse = pulse or Still()
        self._still_s = self._pulse.beat()

    @property
    def lost_beat(self) -> int:
        return self.population.ended["lost_beat"]

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
            time.sleep(_NAP_S)
        population.target.gauge.forget()
        self.clock.start()
        population.begin()

    def run_until(self, instant_s: float) -> None:
        """Take what comes until that instant, or until nobody is left. Raises EngineError."""
        if not self.population.begun:
            self.population.begin()
        while not self.stopped():
            self._count()
            self._look_for_failure()
            rest = instant_s - self.clock.now()
            if rest <= 0 or (not len(self.population) and not self._steps):
                return
            time.sleep(min(rest, _NAP_S))

    def _count(self) -> None:
        still_s = self._pulse.beat()
        self.ledger.still_s += still_s - self._still_s
        self._still_s = still_s
        horizon_s = self.population.horizon_s()
        self._take_news()
        self._flush(min(horizon_s, self.clock.now()))

    def _look_for_failure(self) -> None:
        """An engine that died because a session filled its context is a finding; of any other death, raise."""
        if self._failure is not None and not self.population.ended["context"] and not self.stopped():
            raise EngineError(self._failure)

    def _take_news(self) -> None:
        inbox = self.population.inbox
        for _ in range(len(inbox)):
            self._take(inbox.popleft())

    def _take(self, news: News) -> None:
        if isinstance(news, FrameRecord):
            self._step_of(news.due_s).records.append(news)
        elif isinstance(news, Paced):
            step = self._step_of(news.due_s)
            step.late_s = max(step.late_s, news.late_s)
        elif isinstance(news, Seated):
            self.population.seated.add(news.index)
        elif isinstance(news, Stuck):
            self._look_for_full_pool()
        else:
            self._farewell(news)

    def _look_for_full_pool(self) -> None:
        since_s = self.population.target.nearly_full_since(self.clock)
        if self.pool_full_s is None and since_s is not None:
            self.pool_full_s = since_s

    def _farewell(self, news: Ended) -> None:
        if news.reason == "engine" and self._failure is None:
            self._failure = news.detail
        self.population.forget(news.index, news.reason)
        self.ledger.forget(news.index)

    def _step_of(self, due_s: float) -> _Step:
        return self._steps.setdefault(math.floor(due_s / self._period_s), _Step())

    def _flush(self, before_s: float) -> None:
        """Count every step whose frames are all known."""
        done = [number for number in sorted(self._steps) if (number + 1) * self._period_s <= before_s]
        for number in done:
            step = self._steps.pop(number)
            if step.records:
                self.ledger.add(sorted(step.records, key=_by_session), {}, step.late_s)


def _by_session(record: FrameRecord) -> tuple[int, float]:
    return record.session, record.due_s
