"""`serve`: a reference server that speaks a real protocol on top of the frame engine.

It serves to try clients and to measure the whole path, including the sockets. Its text consists of tokens of a model
that may have random weights. If the model has no audio output, its tokens are played as tones. `/metrics` on the same
port exports the pool under vLLM's metric names. When all slots are used, a further session is rejected as the protocol
specifies; with `when_full="queue"` it waits without any message, as in Moshi's own server.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http
import logging
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from metronome_cli.backends.in_process.backend import warm_up_engine
from metronome_cli.backends.in_process.loading import load_model
from metronome_cli.backends.step_engine import StepEngine
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.stop import LoadInterrupted, StopRequest
from metronome_cli.protocols.registry import host_codec
from metronome_cli.results.events import ObserverGroup
from metronome_cli.server.client_connection import ClientConnection, OnFull, Service
from metronome_cli.server.engine_loop import EngineLoop
from metronome_cli.server.metrics_page import metrics_text, now

DEFAULT_SLOTS = 32
MAX_BYTES = 16 << 20  # of one message


@dataclass(frozen=True, slots=True)
class ServePlan:
    """Settings of the server. `port` 0 takes any free port; `for_s` None serves until stopped."""

    profile: Profile
    protocol: str
    host: str = "127.0.0.1"
    port: int = 0
    slots: int = DEFAULT_SLOTS
    for_s: float | None = None
    idle_s: float = 60.0  # a client that sends nothing for so long loses its slot
    when_full: OnFull = "refuse"
    device: str = "auto"
    weights: Path | None = None
    seed: int = 0


def run_serve(plan: ServePlan, stop: StopRequest, announce: Callable[[str], None]) -> bool:
    """Serve until stopped or until the time is over; return False if it was stopped before it was ready.

    Raises UsageError, EngineError.
    """
    host_codec(plan.protocol)
    try:
        with stop.during_load():
            model = load_model(
                plan.profile,
                device=plan.device,
                seed=plan.seed,
                weights=plan.weights,
                observer=ObserverGroup(),
            )
            target = model.fresh_engine(plan.profile, plan.slots)
            warm_up_engine(target, plan.profile)
    except LoadInterrupted:
        return False
    if stop():
        return False
    asyncio.run(ReferenceServer(plan, target).run(stop, announce))
    return True


class ReferenceServer:
    """One engine, served over one protocol on one port."""

    def __init__(self, plan: ServePlan, target: StepEngine) -> None:
        self.plan = plan
        self.room = EngineLoop(target, plan.profile, plan.seed)
        codec = host_codec(plan.protocol, plan.profile.turn_taking.mean_turn)
        self.traits = codec().traits
        self.service = Service(plan.profile, codec, self.room, plan.when_full, plan.idle_s)
        self._started_at = now()

    async def run(self, stop: StopRequest, announce: Callable[[str], None]) -> None:
        """Open the port, report its URL, and serve."""
        beat = asyncio.ensure_future(self.room.run())
        try:
            async with await self._listen() as server:
                announce(self._where(server))
                await self._until_over(stop, beat)
                server.close()
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
            self.room.shut()

    async def _listen(self) -> Server:
        plan = self.plan
        try:
            return await serve(
                self._meet,
                plan.host,
                plan.port,
                process_request=self._before,
                subprotocols=[Subprotocol(name) for name in self.traits.subprotocols] or None,
                select_subprotocol=lambda connection, offered: offered[0] if offered else None,
                compression=None,
                close_timeout=1.0,
                max_size=MAX_BYTES,
                logger=_quiet(),
            )
        except (OSError, UnicodeError) as error:
            raise _cannot_listen(plan, error) from error

    def _where(self, server: Server) -> str:
        host, port = next(iter(server.sockets)).getsockname()[:2]
        return f"ws://{f'[{host}]' if ':' in host else host}:{port}{self.traits.path}"

    async def _until_over(self, stop: StopRequest, beat: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        until = None if self.plan.for_s is None else loop.time() + self.plan.for_s
        while not stop() and (until is None or loop.time() < until):
            await asyncio.wait([beat], timeout=0.1)
            if beat.done():
                beat.result()

    def _before(self, connection: ServerConnection, request: Request) -> Response | None:
        """Serve the metrics page; answer 404 at all paths other than the protocol's."""
        if not _local_origin(request.headers.get("Origin"), request.headers.get("Host", "")):
            return connection.respond(http.HTTPStatus.FORBIDDEN, "pages of other sites may not connect\n")
        path = request.path.partition("?")[0]
        if path == "/metrics":
            return connection.respond(http.HTTPStatus.OK, metrics_text(self.room, self._started_at))
        if path != self.traits.path.partition("?")[0]:
            return connection.respond(
                http.HTTPStatus.NOT_FOUND, f"{self.traits.name} is at {self.traits.path}\n"
            )
        return None

    async def _meet(self, socket: ServerConnection) -> None:
        """Serve one client, from the websocket upgrade to the end."""
        client = ClientConnection(self.service, socket)
        with contextlib.suppress(ConnectionClosed):
            await client.stay()


def _cannot_listen(plan: ServePlan, error: OSError | UnicodeError) -> UsageError:
    """Error for an address that cannot be opened; names --port or --host, whichever is wrong."""
    said = (getattr(error, "strerror", None) or "not a name").rpartition(": ")[2]
    if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES):
        return UsageError(f"--port {plan.port}: {said}", hint="choose another port; 0 takes any free one")
    return UsageError(
        f"--host {plan.host}: {said}", hint="give an address of this machine, such as 127.0.0.1"
    )


def _quiet() -> logging.Logger:
    """Logger for the socket library that drops reports of client errors."""
    logger = logging.getLogger("metronome.serve")
    logger.propagate = False
    logger.setLevel(logging.CRITICAL)
    return logger


def _local_origin(origin: str | None, host: str) -> bool:
    """True if a web page of this origin may connect: a page of this machine or of the server's own address."""
    if origin is None:
        return True
    parts = urllib.parse.urlsplit(origin)
    return parts.hostname in ("localhost", "127.0.0.1", "::1") or parts.netloc == host
