"""The conditions of points that are measured on a server over the network.

The same server serves every point: it cannot be made fresh from here, and its sessions are all new when a point
begins, whatever their number. The profile says period, deadline and objectives; its audio is brought to the
protocol's rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, cast

from metronome_cli.audio.streams import LoopedSpeech
from metronome_cli.backends.in_process.driver import Driver
from metronome_cli.backends.in_process.population import AudioSource
from metronome_cli.backends.step_engine import Target
from metronome_cli.backends.streaming.pacing import beat_of
from metronome_cli.backends.websocket.detect import served_model
from metronome_cli.backends.websocket.encoded_loop import EncodedLoop, encode_loop
from metronome_cli.backends.websocket.endpoint import (
    ConnectError,
    Endpoint,
    SessionTimeouts,
    detect,
    endpoint,
    not_reached,
)
from metronome_cli.backends.websocket.idle_call import check_unit, learn_answers
from metronome_cli.backends.websocket.monitor import EVERY_S, ServerMonitor
from metronome_cli.backends.websocket.paced import HostStarter, PacedDriver, WirePopulation, here
from metronome_cli.backends.websocket.process_workers import start_workers
from metronome_cli.backends.websocket.ray_workers import need_ray, start_ray_workers
from metronome_cli.capacity.lab import Lab
from metronome_cli.commands.predict.from_metrics import ScrapePlan
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.http import shown
from metronome_cli.core.metrics_page import fetch, why_none
from metronome_cli.load.trace import TraceTrial
from metronome_cli.protocols.prometheus_text import parse
from metronome_cli.protocols.registry import need_libraries
from metronome_cli.protocols.server_metrics import read_any
from metronome_cli.protocols.turn_end import TurnEnd
from metronome_cli.results.forecast_result import Forecast

DEFAULT_ACTORS = 2


@dataclass(frozen=True, slots=True)
class WebsocketSetup:
    """Which server, and how: `protocol` "auto" finds it out; `scrape` is the address of its Prometheus metrics.

    `workers`: in how many processes the callers live, with `ray` on the machines of that cluster; None: in this one.
    `model` is the name that vLLM's realtime endpoint serves, by its own list unless given. Keys come from the
    environment (backends/websocket/endpoint.py).
    """

    target: str
    protocol: str = "auto"
    scrape: str | None = None
    metric: str | None = None
    scrape_every_s: float | None = None  # None: once a second, more often where sessions are short
    model: str | None = None
    turn_end: TurnEnd | None = None
    workers: int | None = None
    ray: str | None = None
    limits: SessionTimeouts = field(default_factory=SessionTimeouts)
    ca_file: Path | None = None
    environ: Mapping[str, str] | None = field(default=None, repr=False)

    def find(self, period_s: float | None = None) -> Endpoint:
        """The endpoint, after one connection, and an idle call if a frame period is given.

        Raises UsageError, EngineError.
        """
        need_libraries()
        protocol = self.protocol
        if protocol == "auto":
            protocol = asyncio.run(detect(self.target, self.limits, self.environ, self.ca_file))
        found = self._endpoint(protocol, self.model)
        asyncio.run(_probe_connection(found))
        if protocol == "vllm-realtime" and self.model is None:
            found = self._endpoint(protocol, served_model(found))
        if period_s is None:
            return found
        check_unit(found, period_s)
        return asyncio.run(learn_answers(found, period_s))

    def _endpoint(self, protocol: str, model: str | None) -> Endpoint:
        return endpoint(self.target, protocol, self.limits, self.environ, model, self.ca_file, self.turn_end)

    def fetch(self) -> Callable[[], str] | None:
        """Gets the text of one scrape, if there is anything to scrape. Raises UsageError where the metrics that are
        there now cannot serve.
        """
        if self.scrape is None:
            return None
        get = partial(fetch, ScrapePlan(self.scrape).address, self.ca_file)
        try:
            read_any(parse(get(), "--metrics-url"), self.metric, "--metrics-url")
        except OSError as error:
            raise UsageError(
                f"--metrics-url {shown(self.scrape)}: {why_none(error)}",
                hint="leave it out to measure without it",
            ) from None
        return get

    def crew(self) -> HostStarter:
        """Where the callers live. Raises UsageError where Ray is asked for and not installed."""
        if self.ray is not None:
            need_ray()
            return partial(start_ray_workers, count=self.workers or DEFAULT_ACTORS, address=self.ray)
        return here if self.workers is None else partial(start_workers, count=self.workers)


async def _probe_connection(found: Endpoint, *, any_answer: bool = False) -> None:
    """Raises EngineError where nobody opens, or nobody is there if `any_answer` will do."""
    try:
        socket = await found.connect()
    except ConnectError as error:
        if any_answer and error.reason != "unreachable":
            return
        raise not_reached(found.url, error) from None
    await socket.close()


def at_rate(profile: Profile, sample_rate: int) -> Profile:
    """The profile with its audio at the protocol's rate."""
    frame = profile.frame.model_copy(update={"sample_rate": sample_rate})
    return profile.model_copy(update={"frame": frame})


def aligned_audio(streams: AudioSource) -> AudioSource:
    """Speech in whole frames, so that what goes over the wire is encoded once."""
    return streams.shared() if isinstance(streams, LoopedSpeech) else streams


@dataclass(slots=True)
class RemoteLab(Lab):
    """A lab whose drivers have sockets. `fetch` makes one scrape's text."""

    told_by_server: ClassVar[bool] = True

    endpoint: Endpoint | None = None
    fetch: Callable[[], str] | None = None
    metric: str | None = None
    scrape_every_s: float = EVERY_S
    crew: HostStarter = here
    ready: tuple[AudioSource, EncodedLoop | None] | None = None
    drivers: list[PacedDriver] = field(default_factory=list)
    forecast: Forecast | None = None  # of the point that says most about the server's memory
    seats: int | None = None  # how many callers it seated when it turned others away

    def fresh_target(self, seats: int) -> Target:
        assert self.endpoint is not None
        return cast(Target, ServerMonitor(self.endpoint))

    def driver(self, seats: int, head: TraceTrial | None = None) -> Driver:
        return cast(Driver, self.paced(head))  # the same shape, but for `step`

    def paced(self, head: TraceTrial | None = None) -> PacedDriver:
        """Nobody on the line, a clock at 0, an empty ledger. Whoever was on the line before is hung up."""
        assert self.endpoint is not None
        self.hang_up()
        target = ServerMonitor(self.endpoint, self.fetch, self.metric, self.scrape_every_s)
        streams, loop = self._ready()
        population = WirePopulation(
            target, self.endpoint, streams, self.profile, self.crew, self.note(head), loop
        )
        driver = PacedDriver(population, self.ledger(), self.stop, self.pulse)
        self.drivers.append(driver)
        return driver

    def _ready(self) -> tuple[AudioSource, EncodedLoop | None]:
        """The callers' audio, the recording encoded where that can be done for all of them at once."""
        assert self.endpoint is not None
        if self.ready is None:
            streams, beat = aligned_audio(self.streams), beat_of(self.profile)
            rate = self.profile.frame.sample_rate
            opus = self.endpoint.codec().wrap is not None
            self.ready = streams, encode_loop(streams, rate, beat.period_s, beat.pieces) if opus else None
        return aligned_audio(self.streams), self.ready[
            1
        ]  # a replayed run has streams of its own, of the same loop

    def knock_again(self) -> None:
        """See whether the server is still there. Raises EngineError where it is not."""
        assert self.endpoint is not None
        asyncio.run(_probe_connection(self.endpoint, any_answer=True))

    def note_forecast(self, found: Forecast | None) -> None:
        """Keep it, unless a full pool is known already: what was seen to fill says more than what may."""
        if found is not None and (self.forecast is None or self.forecast.observed_fill_time_s is None):
            self.forecast = found

    def note_seats(self, seats: int) -> None:
        """That many were seated when somebody was turned away, or left waiting."""
        self.seats = seats if self.seats is None else max(self.seats, seats)

    def hang_up(self) -> None:
        """Close every driver."""
        while self.drivers:
            self.drivers.pop().close()
