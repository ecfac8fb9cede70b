"""One client of the reference server: its socket, its codec, and its slot in the engine."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from websockets.asyncio.server import ServerConnection

from metronome_cli.audio.resample import resample
from metronome_cli.config.profile import Profile
from metronome_cli.core.types import Audio, FrameOutput, SessionRefused
from metronome_cli.protocols.interface import ServerCodec
from metronome_cli.protocols.messages import (
    Answered,
    AudioReceived,
    ClientMessage,
    InputFinished,
    Leaving,
    MarkReceived,
    Message,
    ProtocolError,
)
from metronome_cli.server.engine_loop import EngineLoop, ServedSession

OnFull = Literal["refuse", "queue"]
MAX_UNSENT = 256  # messages to a client that does not read
MAX_UNPROCESSED_S = 60.0  # of audio that the engine has not processed


@dataclass(frozen=True, slots=True)
class _Close:
    """Queue entry that closes the connection after all messages before it are sent."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Service:
    """Engine, codec and limits that all clients of one server share. `idle_s`: how long a client may send nothing
    before it loses its slot."""

    profile: Profile
    codec: Callable[[], ServerCodec]
    room: EngineLoop
    when_full: OnFull
    idle_s: float
    slot_freed: asyncio.Condition = field(default_factory=asyncio.Condition)


class ClientConnection:
    """One connected client, with a slot or waiting for one."""

    def __init__(self, server: Service, socket: ServerConnection) -> None:
        self._server = server
        self._socket = socket
        self._codec: ServerCodec = server.codec()
        self._unsent: asyncio.Queue[Sequence[Message] | _Close] = asyncio.Queue(MAX_UNSENT)
        self._marks: deque[tuple[int, int]] = deque()  # (frame that must be answered first, id)
        self._answered = 0
        self._session: ServedSession | None = None

    async def stay(self) -> None:
        """Serve the client until it leaves, is closed, or its connection is lost."""
        if self._socket.request is not None:
            self._codec.connected(self._socket.request.headers)
        session = await self._take_slot()
        if session is None:
            return
        self._session = session
        session.decide = self._codec.speaks
        writing = asyncio.ensure_future(self._write())
        try:
            self._post(self._codec.greeting())
            await self._read(session, writing)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await self._server.room.close(session)
            async with self._server.slot_freed:
                self._server.slot_freed.notify()

    async def _take_slot(self) -> ServedSession | None:
        server = self._server
        while True:
            try:
                return await server.room.open(self._answer)
            except SessionRefused as refused:
                if server.when_full == "refuse":
                    await self._send(self._codec.refusal(str(refused)))
                    await self._socket.close(1013, "full")
                    return None
            waiting = asyncio.ensure_future(self._a_slot_is_free())
            gone = asyncio.ensure_future(self._socket.wait_closed())
            try:
                await asyncio.wait([waiting, gone], return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return None
            finally:
                waiting.cancel()
                gone.cancel()
                await asyncio.gather(waiting, gone, return_exceptions=True)

    async def _a_slot_is_free(self) -> None:
        async with self._server.slot_freed:
            await self._server.slot_freed.wait()

    async def _read(self, session: ServedSession, writing: asyncio.Future[None]) -> None:
        """Take messages until the client leaves or sends nothing for too long."""
        server = self._server
        while True:
            try:
                async with asyncio.timeout(server.idle_s):
                    message = await self._socket.recv()
            except TimeoutError:
                self._close(1008, f"nothing came for {server.idle_s:g} s")
                await writing
                return
            if not all(self._take(session, wish) for wish in self._codec.read(message)):
                await writing
                return
            if len(session.frames) * server.profile.frame.period_s > MAX_UNPROCESSED_S:
                await self._socket.close(1013, "too far behind")
                return

    def _take(self, session: ServedSession, wish: ClientMessage) -> bool:
        """Handle one client message; return False if it ends the session."""
        if isinstance(wish, AudioReceived):
            rate, wanted = self._codec.traits.sample_rate, self._server.profile.frame.sample_rate
            self._server.room.hear(session, _at_rate(wish.samples, rate, wanted))
        elif isinstance(wish, Answered):
            self._post(wish.messages)
        elif isinstance(wish, MarkReceived):
            self._marks.append((session.heard, wish.id))
            self._echo_marks()
        elif isinstance(wish, InputFinished):
            self._post(self._codec.farewell())
        elif isinstance(wish, ProtocolError):
            self._close(1007, wish.what)
            return False
        elif isinstance(wish, Leaving):
            self._close(1000, "")
            return False
        return True

    def _echo_marks(self) -> None:
        while self._marks and self._marks[0][0] <= self._answered:
            self._post(self._codec.echo(self._marks.popleft()[1]))

    def _answer(self, outcome: FrameOutput) -> None:
        """Handle the engine's output of one frame."""
        self._answered += 1
        if outcome.ended is not None:
            self._post(self._codec.refusal(f"the session was ended by the engine: {outcome.ended}"))
            self._close(1013, "ended by the engine")
            return
        session = self._session
        speaking = session is not None and session.speaks
        listened = self._codec.traits.unit_s is not None and not outcome.expected and not outcome.waiting
        if outcome.delivered or listened:
            backlog = len(session.frames) * self._server.profile.frame.samples if session else 0
            self._post(self._codec.answer(self._sound(outcome), _text(outcome), backlog, speaking))
        self._echo_marks()

    def _sound(self, outcome: FrameOutput) -> Audio:
        profile, rate = self._server.profile, self._codec.traits.sample_rate
        if outcome.audio is not None:
            return _at_rate(outcome.audio, profile.frame.sample_rate, rate)
        return tones(outcome.tokens, round(profile.frame.period_s * rate), rate)

    def _post(self, messages: Sequence[Message]) -> None:
        """Send queued messages in order; disconnect a client that does not read."""
        self._put(messages)

    def _close(self, code: int, reason: str) -> None:
        self._put(_Close(code, reason))

    def _put(self, item: Sequence[Message] | _Close) -> None:
        try:
            self._unsent.put_nowait(item)
        except asyncio.QueueFull:
            self._socket.transport.abort()

    async def _write(self) -> None:
        while not isinstance(item := await self._unsent.get(), _Close):
            await self._send(item)
        await self._socket.close(item.code, item.reason)

    async def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await self._socket.send(message)


def _text(outcome: FrameOutput) -> str:
    return " ".join(str(token) for token in outcome.tokens)


def _at_rate(samples: Audio, from_hz: int, to_hz: int) -> Audio:
    return samples if from_hz == to_hz or not len(samples) else resample(samples, from_hz, to_hz)


def tones(tokens: Sequence[int], samples: int, sample_rate: int) -> Audio:
    """Tokens as tones, one after the other: [samples] float32. Not speech, only an audible sign of output."""
    count = max(1, len(tokens))
    pitch = np.array([200.0 + 25.0 * (token % 48) for token in tokens] or [0.0])
    each = pitch[np.arange(samples) * count // samples]
    return (0.1 * np.sin(2 * np.pi * np.cumsum(each) / sample_rate)).astype(np.float32)
