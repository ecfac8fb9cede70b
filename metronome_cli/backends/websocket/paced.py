"""Drives a server over the network (backends/streaming/live.py): sessions of backends/websocket/session.py, in
a thread of their own or in workers.

The generator's lateness is the time between a frame's planned sending and the instant after it was handed to the
kernel; the latest in a step counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from metronome_cli.backends.in_process.population import AudioSource
from metronome_cli.backends.streaming.live import NAP_S, LiveDriver, LivePopulation
from metronome_cli.backends.streaming.pacing import beat_of
from metronome_cli.backends.websocket.encoded_loop import EncodedLoop
from metronome_cli.backends.websocket.endpoint import Endpoint
from metronome_cli.backends.websocket.monitor import ServerMonitor
from metronome_cli.backends.websocket.network_counts import NOT_LOST, NetworkCounts
from metronome_cli.backends.websocket.socket_host import HostSetup, ShareLike, SocketHost
from metronome_cli.config.profile import Profile
from metronome_cli.core.session_events import (
    FrameSent,
    Reconnected,
    SessionEnded,
    SessionEvent,
    SessionStarted,
)
from metronome_cli.core.types import EndReason, SessionRefused
from metronome_cli.load.arrivals import Arrival
from metronome_cli.load.door import Note
from metronome_cli.measure.ledger import Ledger
from metronome_cli.measure.stall import StallDetector, Still
from metronome_cli.protocols.messages import BacklogReported

HostStarter = Callable[[HostSetup], Sequence[ShareLike]]  # starts the shares of one population


def here(order: HostSetup) -> Sequence[ShareLike]:
    """One share, in this process."""
    return [SocketHost(order)]


class WirePopulation(LivePopulation):
    """Callers on the line; their handshakes happen while the driver runs."""

    def __init__(
        self,
        target: ServerMonitor,
        endpoint: Endpoint,
        streams: AudioSource,
        profile: Profile,
        crew: HostStarter = here,
        note: Note | None = None,
        loop: EncodedLoop | None = None,
    ) -> None:
        super().__init__(profile, note)
        self.target = target
        self.shares = crew(HostSetup(endpoint, streams, beat_of(profile), self.clock.zero_s, loop))
        self.hosts = self.shares

    @property
    def lost(self) -> str | None:
        """Why a part of the sessions cannot be reached any more."""
        return next((share.lost for share in self.shares if share.lost is not None), None)

    @property
    def workers(self) -> int:
        """Processes with callers in them, beside this one."""
        return sum(not isinstance(share, SocketHost) for share in self.shares)

    @property
    def cpu_share(self) -> float | None:
        """Processor time of the busiest process with callers since audio began, as a share of one core."""
        return max((share.cpu_share for share in self.shares if share.cpu_share is not None), default=None)

    def open(
        self, now_s: float, age_s: float = 0.0, lifetime_s: float = math.inf, index: int | None = None
    ) -> None:
        """Let one more caller knock, unless he has; every session is new, whatever `age_s` says. Raises SlotRefused
        once the server has turned one away.
        """
        if index is None:
            index = self.knock(Arrival(now_s, 0.0, lifetime_s))
        if self.ended["rejected"] or self.ended["queue_timeout"]:
            raise SessionRefused("slots", "the server takes no more sessions")
        share = self.shares[index % len(self.shares)]
        self._open[index] = share
        share.open(index, lifetime_s)

    def begin(self) -> None:
        """Who is seated speaks, from now on."""
        for share in self.shares:
            share.begin()

    def forget_all(self) -> None:
        """Those who never got to run when their share was closed."""
        for index in list(self._open):
            self.forget(index, "completed")

    def close(self) -> None:
        """Hang everybody up. A last `poll` brings the ends."""
        for share in self.shares:
            share.start_closing()
        for share in self.shares:
            share.close()


class PacedDriver(LiveDriver[WirePopulation]):
    """One server, one population, one ledger. `close` hangs everybody up."""

    preemptions = 0

    def __init__(
        self,
        population: WirePopulation,
        ledger: Ledger,
        stopped: Callable[[], bool] = lambda: False,
        pulse: StallDetector | Still | None = None,
    ) -> None:
        super().__init__(population, ledger, stopped, pulse)
        self.wire = NetworkCounts()
        self._closing = False

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
        while self.population.preparing and not self.stopped() and not self.population.lost:
            self._take_news()
            time.sleep(NAP_S)
        self.begin()

    def start(self) -> None:
        """The clock goes on: it cannot be turned back while frames are under way."""

    def begin(self) -> None:
        """Sessions speak as soon as they are seated, from now on."""
        self.population.begin()

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

    def _take(self, news: SessionEvent) -> None:
        super()._take(news)
        wire = self.wire
        if isinstance(news, FrameSent):
            wire.pacing.add(news.late_s * 1e3)
        elif isinstance(news, SessionStarted):
            wire.handshake.add(news.wait_s * 1e3)
        elif isinstance(news, BacklogReported):
            wire.server_backlog.add(news.seconds * 1e3)
        elif isinstance(news, Reconnected):
            wire.returns += 1
            wire.reasons.setdefault(f"{news.reason}, and back", news.detail)

    def _farewell(self, news: SessionEnded, reason: EndReason) -> bool:
        self.wire.sent_s += news.sent_s
        self.wire.heard_s += news.heard_s
        if self._closing and reason == "shed":
            reason = "completed"
        was_open = super()._farewell(news, reason)
        if was_open and reason not in NOT_LOST:
            self.wire.reasons.setdefault(reason, news.detail)
        return was_open
