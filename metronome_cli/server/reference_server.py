"""`serve`: a reference server that speaks a real protocol on top of the frame engine.

For trying clients, and for measuring the whole path, sockets included. Its words are tokens of a model that may
have random weights; where the model makes no sound of its own, its tokens are made audible as tones. `/metrics`
on the same port has the pool under vLLM's names. A caller beyond the last seat is turned away as the protocol does
it, or, `when_full="queue"`, waits without a word, as Moshi's own server makes callers wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from metronome_cli.audio.resample import resample
from metronome_cli.backends.step_engine import Target
from metronome_cli.capacity.in_process import load_model
from metronome_cli.capacity.lab import warm_up_engine
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.stop import LoadInterrupted, StopRequest
from metronome_cli.core.types import Audio, FrameOutput, SessionRefused
from metronome_cli.protocols.interface import ServerCodec
from metronome_cli.protocols.messages import (
    AudioReceived,
    InputFinished,
    MarkReceived,
    Message,
    ProtocolError,
)
from metronome_cli.protocols.registry import host_codec
from metronome_cli.results.events import ObserverGroup
from metronome_cli.server.engine_loop import EngineLoop, ServedSession
from metronome_cli.server.metrics_page import metrics_text, now

DEFAULT_SEATS = 32
MOST_UNSENT = 256  # messages to a caller that does not read
MOST_UNHEARD_S = 60.0  # of audio that the engine has not dealt with
OnFull = Literal["refuse", "queue"]


@dataclass(frozen=True, slots=True)
class ServePlan:
    """What to serve. `port` 0: any free one. `for_s` None: until stopped."""

    profile: Profile
    protocol: str
    host: str = "127.0.0.1"
    port: int = 0
    seats: int = DEFAULT_SEATS
    for_s: float | None = None
    when_full: OnFull = "refuse"
    device: str = "auto"
    weights: Path | None = None
    seed: int = 0


def run_serve(plan: ServePlan, stop: StopRequest, announce: Callable[[str], None]) -> bool:
    """Serve until stopped or until the time is over; False where it was stopped before it was up.

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
            target = model.fresh_target(plan.profile, plan.seats)
            warm_up_engine(target, plan.profile)
    except LoadInterrupted:
        return False
    if stop():
        return False
    asyncio.run(ReferenceServer(plan, target).run(stop, announce))
    return True


class ReferenceServer:
    """One target, one protocol, one port."""

    def __init__(self, plan: ServePlan, target: Target) -> None:
        self.plan = plan
        self.room = EngineLoop(target, plan.profile, plan.seed)
        self.codec = host_codec(plan.protocol)
        self.traits = self.codec().traits
        self.free = asyncio.Condition()
        self._started_at = now()

    async def run(self, stop: StopRequest, announce: Callable[[str], None]) -> None:
        """Open the port, say where, and serve."""
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
                max_size=1 << 20,
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
        """Metrics, and nothing at other paths than the protocol's."""
        path = request.path.partition("?")[0]
        if path == "/metrics":
            return connection.respond(http.HTTPStatus.OK, metrics_text(self.room, self._started_at))
        if path != self.traits.path:
            return connection.respond(
                http.HTTPStatus.NOT_FOUND, f"{self.traits.name} is at {self.traits.path}\n"
            )
        return None

    async def _meet(self, socket: ServerConnection) -> None:
        """One caller, from the upgrade to the end."""
        caller = ClientConnection(self, socket)
        with contextlib.suppress(ConnectionClosed):
            await caller.stay()


class ClientConnection:
    """A socket with a seat, or without one yet."""

    def __init__(self, server: ReferenceServer, socket: ServerConnection) -> None:
        self._server = server
        self._socket = socket
        self._codec: ServerCodec = server.codec()
        self._unsent: asyncio.Queue[Sequence[Message] | None] = asyncio.Queue(MOST_UNSENT)
        self._marks: deque[tuple[int, int]] = deque()  # (frame that must be answered first, id)
        self._answered = 0
        self._seat: ServedSession | None = None

    async def stay(self) -> None:
        seat = await self._take_seat()
        if seat is None:
            return
        self._seat = seat
        writing = asyncio.ensure_future(self._write())
        try:
            self._post(self._codec.greeting())
            await self._read(seat)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await self._server.room.close(seat)
            async with self._server.free:
                self._server.free.notify()

    async def _take_seat(self) -> ServedSession | None:
        server = self._server
        while True:
            try:
                return await server.room.open(self._answer)
            except SessionRefused as refused:
                if server.plan.when_full == "refuse":
                    await self._send(self._codec.refusal(str(refused)))
                    await self._socket.close(1013, "full")
                    return None
            waiting = asyncio.ensure_future(self._a_seat_is_free())
            gone = asyncio.ensure_future(self._socket.wait_closed())
            try:
                await asyncio.wait([waiting, gone], return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return None
            finally:
                waiting.cancel()
                gone.cancel()
                await asyncio.gather(waiting, gone, return_exceptions=True)

    async def _a_seat_is_free(self) -> None:
        async with self._server.free:
            await self._server.free.wait()

    async def _read(self, seat: ServedSession) -> None:
        profile, rate = self._server.plan.profile, self._codec.traits.sample_rate
        async for message in self._socket:
            for wish in self._codec.read(message):
                if isinstance(wish, AudioReceived):
                    self._server.room.hear(seat, _at_rate(wish.samples, rate, profile.frame.sample_rate))
                elif isinstance(wish, MarkReceived):
                    self._mark(seat, wish.id)
                elif isinstance(wish, ProtocolError):
                    await self._socket.close(1007, wish.what)
                    return
                elif isinstance(wish, InputFinished):
                    self._post(self._codec.farewell())
            if len(seat.frames) * profile.frame.period_s > MOST_UNHEARD_S:
                await self._socket.close(1013, "too far behind")
                return

    def _mark(self, seat: ServedSession, mark: int) -> None:
        self._marks.append((seat.heard, mark))
        self._echo_marks()

    def _echo_marks(self) -> None:
        while self._marks and self._marks[0][0] <= self._answered:
            self._post(self._codec.echo(self._marks.popleft()[1]))

    def _answer(self, outcome: FrameOutput) -> None:
        """A frame came back from the engine."""
        self._answered += 1
        if outcome.ended is not None:
            self._post(self._codec.refusal(f"the session was ended by the engine: {outcome.ended}"))
            self._post(None)
            return
        if outcome.delivered:
            backlog = len(self._seat.frames) * self._server.plan.profile.frame.samples if self._seat else 0
            self._post(self._codec.answer(self._sound(outcome), _words(outcome), backlog))
        self._echo_marks()

    def _sound(self, outcome: FrameOutput) -> Audio:
        profile, rate = self._server.plan.profile, self._codec.traits.sample_rate
        if outcome.audio is not None:
            return _at_rate(outcome.audio, profile.frame.sample_rate, rate)
        return tones(outcome.tokens, round(profile.frame.period_s * rate), rate)

    def _post(self, messages: Sequence[Message] | None) -> None:
        """To be sent in order; a caller that does not read is cut off."""
        try:
            self._unsent.put_nowait(messages)
        except asyncio.QueueFull:
            self._socket.transport.abort()

    async def _write(self) -> None:
        while (messages := await self._unsent.get()) is not None:
            await self._send(messages)
        await self._socket.close(1013, "ended by the engine")

    async def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await self._socket.send(message)


def _cannot_listen(plan: ServePlan, error: OSError | UnicodeError) -> UsageError:
    """What is wrong with the place to listen at: its port, or else its host."""
    said = (getattr(error, "strerror", None) or "not a name").rpartition(": ")[2]
    if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES):
        return UsageError(f"--port {plan.port}: {said}", hint="another port; 0 takes any free one")
    return UsageError(f"--host {plan.host}: {said}", hint="an address of this machine, such as 127.0.0.1")


def _quiet() -> logging.Logger:
    """For the socket library: what clients do wrong is no news."""
    logger = logging.getLogger("metronome.serve")
    logger.propagate = False
    logger.setLevel(logging.CRITICAL)
    return logger


def _words(outcome: FrameOutput) -> str:
    return " ".join(str(token) for token in outcome.tokens)


def _at_rate(samples: Audio, from_hz: int, to_hz: int) -> Audio:
    return samples if from_hz == to_hz or not len(samples) else resample(samples, from_hz, to_hz)


def tones(tokens: Sequence[int], samples: int, sample_rate: int) -> Audio:
    """Tokens as tones, one after the other: [samples] float32. Not speech; a sign of life that can be heard."""
    count = max(1, len(tokens))
    pitch = np.array([200.0 + 25.0 * (token % 48) for token in tokens] or [0.0])
    each = pitch[np.arange(samples) * count // samples]
    return (0.1 * np.sin(2 * np.pi * np.cumsum(each) / sample_rate)).astype(np.float32)
