"""Drives a server over the network, in real time: the shape of load/driver.py, sessions of load/wire.py.

Sockets live in a thread of their own, or in workers (load/share.py). Their news are taken here, in the caller's thread,
into the same ledger that the in-process driver fills, so workers change nothing in how is counted. The frames of all
sessions that were due in one period make one step: servers batch them, so they are no independent evidence. A step is
counted when no frame of it can be answered any more.

The generator's lateness is the time between a frame's planned sending and the instant after it was handed to the
kernel; the latest in a step counts.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from metronome_cli.config.profile import Profile
from metronome_cli.engine.types import EndReason, SlotRefused
from metronome_cli.load.arrivals import Arrival
from metronome_cli.load.clock import RealClock
from metronome_cli.load.news import Ended, Lagged, News, Paced, Returned, Seated
from metronome_cli.load.opus_loop import OpusLoop
from metronome_cli.load.population import Note, StreamSource
from metronome_cli.load.share import Order, Share, ShareLike
from metronome_cli.load.wire import Beat
from metronome_cli.measure.histogram import LogHistogram
from metronome_cli.measure.ledger import FrameRecord, Ledger
from metronome_cli.measure.pulse import Pulse, Still
from metronome_cli.targets.endpoint import Endpoint
from metronome_cli.targets.remote import RemoteTarget

_NAP_S = 0.005  # small portions: while this thread counts, the sockets may have to wait for it
NOT_LOST: frozenset[EndReason] = frozenset({"finished", "shed"})


@dataclass(slots=True)
class _Step:
    records: list[FrameRecord] = field(default_factory=list)
    late_s: float = 0.0


@dataclass(slots=True)
class WireCounts:
    """What only sockets tell."""

    handshake: LogHistogram = field(default_factory=LogHistogram)  # ms
    pacing: LogHistogram = field(default_factory=LogHistogram)  # ms late, each frame
    workers: int = 0
    cpu_share: float | None = None  # of one core, the busiest process with callers
    server_backlog: LogHistogram = field(default_factory=LogHistogram)  # ms, as the server says
    returns: int = 0  # of sessions whose connection broke off
    sent_s: float = 0.0
    heard_s: float = 0.0
    reasons: dict[str, str] = field(default_factory=dict)  # by reason, what the first one said


def beat_of(profile: Profile) -> Beat:
    """A frame that nothing answered in ten periods, one second at the least, is empty."""
    frame = profile.frame
    return Beat(frame.period_s, max(1.0, 10 * frame.period_s), frame.backlog_limit)


Crew = Callable[[Order], Sequence[ShareLike]]  # starts the shares of one population


def here(order: Order) -> Sequence[ShareLike]:
    """One share, in this process."""
    return [Share(order)]


class WirePopulation:
    """Callers on the line; their handshakes happen while the driver runs."""

    def __init__(
        self,
        target: RemoteTarget,
        endpoint: Endpoint,
        streams: StreamSource,
        profile: Profile,
        crew: Crew = here,
        note: Note | None = None,
        loop: OpusLoop | None = None,
    ) -> None:
        self.target = target
        self._note = note
        self.profile = profile
        self.ended: Counter[EndReason] = Counter()
        self.refused = 0
        self.seated: set[int] = set()
        self.clock = RealClock()
        self.shares = crew(Order(endpoint, streams, beat_of(profile), self.clock.zero_s, loop))
        self._open: dict[int, ShareLike] = {}  # in order of opening
        self._next_index = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def connecting(self) -> int:
        """Those whose handshake is not over."""
        return len(self._open) - len(self.seated)

    @property
    def lost(self) -> str | None:
        """Why a part of the sessions cannot be reached any more."""
        return next((share.lost for share in self.shares if share.lost is not None), None)

    @property
    def workers(self) -> int:
        """Processes with callers in them, beside this one."""
        return sum(not isinstance(share, Share) for share in self.shares)

    @property
    def cpu_share(self) -> float | None:
        """Processor time of the busiest process with callers since audio began, as a share of one core."""
        return max((share.cpu_share for share in self.shares if share.cpu_share is not None), default=None)

    def knock(self, arrival: Arrival) -> int:
        """A caller comes, whether he is let in or not: his index."""
        index = self._next_index
        self._next_index += 1
        if self._note is not None:
            self._note(index, arrival)
        return index

    def open(
        self, now_s: float, age_s: float = 0.0, lifetime_s: float = math.inf, index: int | None = None
    ) -> None:
        """Let one more caller knock, unless he has; every session is new, whatever `age_s` says. Raises SlotRefused
        once the server has turned one away.
        """
        if index is None:
            index = self.knock(Arrival(now_s, 0.0, lifetime_s))
        if self.ended["refused"] or self.ended["queued"]:
            raise SlotRefused("slots", "the server takes no more sessions")
        share = self.shares[index % len(self.shares)]
        self._open[index] = share
        share.open(index, lifetime_s)

    def begin(self) -> None:
        """Who is seated speaks, from now on."""
        for share in self.shares:
            share.begin()

    def close_newest(self, count: int, reason: EndReason = "shed") -> None:
        """Hang up the callers that came last."""
        for index in list(self._open)[::-1][: max(0, count)]:
            self._open[index].hang_up(index)
            self.forget(index, reason)

    def forget(self, index: int, reason: EndReason) -> bool:
        """That session is over; False when that was known."""
        share = self._open.pop(index, None)
        if share is None:
            return False
        share.forget(index)
        self.seated.discard(index)
        self.ended[reason] += 1
        return True

    def forget_all(self) -> None:
        """Those who never got to run when their share was closed."""
        for index in list(self._open):
            self.forget(index, "finished")

    def horizon_s(self) -> float:
        """No frame due before this instant can still be answered."""
        return min((share.horizon_s() for share in self.shares), default=math.inf)

    def poll(self, take: Callable[[News], None]) -> None:
        """Whatever has come is taken."""
        for share in self.shares:
            share.poll(take)

    def close(self) -> None:
        """Hang everybody up. A last `poll` brings the ends."""
        for share in self.shares:
            share.start_closing()
        for share in self.shares:
            share.close()


class PacedDriver:
    """One server, one population, one ledger. `close` hangs everybody up."""

    preemptions = 0
    stage_occupancy: Mapping[str, float] = MappingProxyType({})
    recomputed_tokens = 0

    def __init__(
        self,
        population: WirePopulation,
        ledger: Ledger,
        stopped: Callable[[], bool] = lambda: False,
        pulse: Pulse | Still | None = None,
    ) -> None:
        self.population = population
        self.clock = population.clock
        self.ledger = ledger
        self.stopped = stopped
        self.wire = WireCounts()
        self._period_s = population.profile.frame.period_s
        self._steps: dict[int, _Step] = {}
        self._closing = False
        self._pulse = pulse or Still()
        self._still_s = self._pulse.beat()

    @property
    def lost_beat(self) -> int:
        return self.population.ended["lost_beat"]

    @property
    def occupancy_max(self) -> float:
        return self.population.target.occupancy_max

    @property
    def pool_full_s(self) -> float | None:
        return self.population.target.full_since(self.clock)

    def seat(self, at_s: float, age_s: float = 0.0, lifetime_s: float = math.inf) -> None:
        """Let one caller knock, who speaks as soon as he is seated. Raises SlotRefused."""
        self.begin()
        self.population.open(at_s, age_s, lifetime_s)

    def seat_all(self, count: int, lifetime_s: float = math.inf) -> None:
        """Let `count` callers knock together, wait until each is seated or turned away, then let them speak."""
        for _ in range(count):
            index = self.population.knock(Arrival(0.0, 0.0, lifetime_s))  # 0: when they begin to speak
            self.population.open(self.clock.now(), lifetime_s=lifetime_s, index=index)
        while self.population.connecting and not self.stopped() and not self.population.lost:
            self._take_news()
            time.sleep(_NAP_S)
        self.begin()

    def start(self) -> None:
        """The clock goes on: it cannot be turned back while frames are under way."""

    def begin(self) -> None:
        """Sessions speak as soon as they are seated, from now on."""
        self.population.begin()

    def run_until(self, instant_s: float) -> None:
        """Take what comes until that instant, or until nobody is left."""
        while not self.stopped():
            self._count()
            rest = instant_s - self.clock.now()
            if rest <= 0 or not len(self.population):
                return
            time.sleep(min(rest, _NAP_S))

    def close(self) -> None:
        """Hang up and count what was still open. A second time does nothing."""
        if not self._closing:
            self.wire.workers, self.wire.cpu_share = self.population.workers, self.population.cpu_share
        self._closing = True
        try:
            self.population.close()
        finally:
            self._count(final=True)
            self.population.forget_all()
            self.population.target.close()

    def _count(self, final: bool = False) -> None:
        still_s = self._pulse.beat()
        self.ledger.still_s += still_s - self._still_s
        self._still_s = still_s
        horizon = math.inf if final else self.population.horizon_s()
        self._take_news()
        self._flush(min(horizon, self.clock.now()))

    def _take_news(self) -> None:
        self.population.poll(self._take)

    def _take(self, news: News) -> None:
        if isinstance(news, FrameRecord):
            self._step_of(news.due_s).records.append(news)
        elif isinstance(news, Paced):
            step = self._step_of(news.due_s)
            step.late_s = max(step.late_s, news.late_s)
            self.wire.pacing.add(news.late_s * 1e3)
        elif isinstance(news, Seated):
            self.population.seated.add(news.index)
            self.wire.handshake.add(news.wait_s * 1e3)
        elif isinstance(news, Lagged):
            self.wire.server_backlog.add(news.seconds * 1e3)
        elif isinstance(news, Returned):
            self.wire.returns += 1
            self.wire.reasons.setdefault(f"{news.reason}, and back", news.detail)
        else:
            self._farewell(news)

    def _farewell(self, news: Ended) -> None:
        self.wire.sent_s += news.sent_s
        self.wire.heard_s += news.heard_s
        reason: EndReason = "finished" if self._closing and news.reason == "shed" else news.reason
        if self.population.forget(news.index, reason) and reason not in NOT_LOST:
            self.wire.reasons.setdefault(reason, news.detail)
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


def reasons_in_words(ended: Counter[EndReason], said: dict[str, str]) -> str:
    """ "3 sessions were refused (HTTP 503), 1 closed (...)", the most frequent first; empty when none was lost."""
    parts: Sequence[str] = [
        f"{count} {reason}" + (f" ({said[reason]})" if said.get(reason) else "")
        for reason, count in ended.most_common()
        if reason not in NOT_LOST and count
    ]
    return ", ".join(parts)
