"""A server over the network as a backend.

All trials use the same server: it cannot be restarted from here, and all sessions are new when a trial begins. The
profile gives period, deadline and objectives; its audio is resampled to the protocol's rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from metronome_cli.backends.interface import BackendTraits, KvDemand, RunSetup
from metronome_cli.backends.streaming.pacing import Pacing, pacing_of
from metronome_cli.backends.streaming.run import StreamingRun
from metronome_cli.backends.websocket.detect import served_model
from metronome_cli.backends.websocket.endpoint import (
    Endpoint,
    SessionTimeouts,
    address,
    detect,
    endpoint,
    probe_connection,
)
from metronome_cli.backends.websocket.heard import CONTEXT_LIMITS, sound_of
from metronome_cli.backends.websocket.idle_call import check_unit, learn_answers
from metronome_cli.backends.websocket.message_cache import EncodedLoop, encode_loop
from metronome_cli.backends.websocket.monitor import EVERY_S, ServerMonitor
from metronome_cli.backends.websocket.process_workers import start_workers
from metronome_cli.backends.websocket.ray_workers import need_ray, start_ray_workers
from metronome_cli.backends.websocket.socket_host import HostSetup, SocketHost
from metronome_cli.backends.websocket.worker_client import WorkerClient
from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import RealClock
from metronome_cli.core.errors import UsageError
from metronome_cli.core.http import shown
from metronome_cli.core.metrics_page import fetch, metrics_address, why_none
from metronome_cli.protocols.prometheus_text import parse
from metronome_cli.protocols.registry import need_libraries
from metronome_cli.protocols.server_metrics import read_any
from metronome_cli.protocols.turn_end import TurnEnd

DEFAULT_ACTORS = 2
HostStarter = Callable[[HostSetup], Sequence[SocketHost | WorkerClient]]  # starts the hosts of one trial


def start_local_host(setup: HostSetup) -> Sequence[SocketHost]:
    """One host, in this process."""
    return [SocketHost(setup)]


@dataclass(frozen=True, slots=True)
class WebsocketSetup:
    """Server and connection settings. `protocol` "auto" detects it; `scrape` is the address of its Prometheus metrics.

    `workers`: number of processes that hold the sessions, with `ray` on the machines of that cluster; None: this
    process alone. `model` is the name that vLLM's realtime endpoint serves, by its own list unless given. Keys come
    from the environment (backends/websocket/endpoint.py).
    """

    target: str
    protocol: str = "auto"
    scrape: str | None = None
    try_metrics: bool = False  # without `scrape`: use the server's own /metrics if its occupancy is there
    metric: str | None = None
    scrape_every_s: float | None = None  # None: once a second, more often if sessions are short
    model: str | None = None
    turn_end: TurnEnd | None = None
    workers: int | None = None
    ray: str | None = None
    limits: SessionTimeouts = field(default_factory=SessionTimeouts)
    ca_file: Path | None = None
    environ: Mapping[str, str] | None = field(default=None, repr=False)

    def find(self, period_s: float | None = None) -> Endpoint:
        """Return the endpoint after one connection, and an idle call if a frame period is given.

        Raises UsageError, EngineError.
        """
        protocol = self.protocol
        if protocol == "auto":
            protocol = asyncio.run(detect(self.target, self.limits, self.environ, self.ca_file))
        found = self._endpoint(protocol, self.model)
        asyncio.run(probe_connection(found))
        if protocol == "vllm-realtime" and self.model is None:
            found = self._endpoint(protocol, served_model(found))
        if period_s is None:
            return found
        check_unit(found, period_s)
        return asyncio.run(learn_answers(found, period_s))

    def _endpoint(self, protocol: str, model: str | None) -> Endpoint:
        return endpoint(self.target, protocol, self.limits, self.environ, model, self.ca_file, self.turn_end)

    def fetch(self) -> Callable[[], str] | None:
        """Return a function that scrapes once; None without metrics. Raises UsageError if the scrape fails."""
        if self.scrape is None:
            return self._fetch_beside() if self.try_metrics else None
        get = partial(fetch, metrics_address(self.scrape), self.ca_file)
        try:
            read_any(parse(get(), "--metrics-url"), self.metric, "--metrics-url")
        except OSError as error:
            raise UsageError(
                f"--metrics-url {shown(self.scrape)}: {why_none(error)}",
                hint="omit the option to measure without server metrics",
            ) from None
        return get

    def _fetch_beside(self) -> Callable[[], str] | None:
        """Return a function that scrapes /metrics of the server's own address; None if it reports no occupancy."""
        url = address(self.target, "/")
        beside = urlsplit(url)._replace(
            scheme="https" if url.startswith("wss") else "http", path="/metrics", query=""
        )
        try:
            return replace(self, scrape=beside.geturl(), try_metrics=False).fetch()
        except UsageError:
            return None

    def host_starter(self) -> HostStarter:
        """Return the function that starts the session hosts. Raises UsageError if a library is missing."""
        need_libraries()
        if self.ray is not None:
            need_ray()
            return partial(start_ray_workers, count=self.workers or DEFAULT_ACTORS, address=self.ray)
        return start_local_host if self.workers is None else partial(start_workers, count=self.workers)


def connect_backend(setup: WebsocketSetup, period_s: float, session_length_s: float) -> WebsocketBackend:
    """Return the server as a backend, after one connection and an idle call. Raises UsageError, EngineError."""
    starter = setup.host_starter()  # a missing library is reported before anything connects
    found = setup.find(period_s)
    every_s = setup.scrape_every_s or min(EVERY_S, max(0.2, session_length_s / 120))
    return WebsocketBackend(found, starter, setup.fetch(), setup.metric, every_s)


def at_rate(profile: Profile, sample_rate: int) -> Profile:
    """Return the profile with its audio at the protocol's rate."""
    frame = profile.frame.model_copy(update={"sample_rate": sample_rate})
    return profile.model_copy(update={"frame": frame})


TRAITS = BackendTraits(
    name="websocket",
    clocks=frozenset({"real"}),
    fresh_engine=False,
    sets_age=False,
    batch="period",
    server_reported=True,
    whole_frames=True,
    policy="the server's own",
    whose="The server's",
)


class WebsocketBackend:
    """Implements `Backend`. `fetch` gets the text of one scrape."""

    def __init__(
        self,
        found: Endpoint,
        starter: HostStarter = start_local_host,
        fetch: Callable[[], str] | None = None,
        metric: str | None = None,
        scrape_every_s: float = EVERY_S,
    ) -> None:
        self.endpoint = found
        self.traits = replace(
            TRAITS, sound=sound_of(found.traits), context_limit=CONTEXT_LIMITS.get(found.traits.name)
        )
        self._starter = starter
        self._fetch = fetch
        self._metric = metric
        self._scrape_every_s = scrape_every_s
        self._encoded: EncodedLoop | None = None

    def describe(self) -> dict[str, Any]:
        return {**self.endpoint.describe(), "weights": "unknown"}

    def occupancy(self) -> float | None:
        """Return the occupancy of the fullest engine's pool now, 0 to 1; None if the metrics do not report it."""
        if self._fetch is None:
            return None
        try:
            reading = read_any(parse(self._fetch()), self._metric)
        except (OSError, UsageError, ValueError):
            return None
        return max(reading.occupancy.values(), default=None)

    def kv_demand(self, profile: Profile, age_s: float) -> KvDemand | None:
        return None

    def start(self, setup: RunSetup) -> StreamingRun:
        clock, pacing = RealClock(), pacing_of(setup.profile)
        host_setup = HostSetup(
            self.endpoint,
            setup.workload.audio,
            pacing,
            clock.zero_s,
            self._encoded_loop(setup, pacing),
            setup.workload.script,
            setup.workload.misbehaving,
        )
        hosts = self._starter(host_setup)
        monitor = ServerMonitor(
            self.endpoint, clock, hosts, setup.stop, self._fetch, self._metric, self._scrape_every_s
        )
        return StreamingRun(setup, hosts, monitor, clock)

    def _encoded_loop(self, setup: RunSetup, pacing: Pacing) -> EncodedLoop | None:
        """Return the recording in Opus, encoded once for all trials; None if the protocol does not carry Opus."""
        if self._encoded is None and self.endpoint.codec().wrap is not None:
            rate = setup.profile.frame.sample_rate
            self._encoded = encode_loop(setup.workload.audio, rate, pacing.period_s, pacing.pieces)
        return self._encoded
