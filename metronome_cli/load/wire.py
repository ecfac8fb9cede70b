"""One live session over a websocket: knock, wait for the seat, pace the audio, listen, end for a named reason.

    finished      its time was over                    closed     the server or the network broke off
    shed          sent away by this side               garbage    not the protocol
    unreachable   no connection                        flood      more than anyone can say
    refused       turned away, and told so             mute       seated, and no output for `idle_s`
    queued        left waiting without a word          stalled    the server takes no more audio
    error         the server reported an error         lost_beat  output fell behind by the profile's limit

Audio is encoded ahead of its time. Send times come from the plan: the session's start, and whole pieces after it.
Nothing reconnects.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from metronome_cli.engine.types import EndReason
from metronome_cli.load.answers import Answers
from metronome_cli.load.session import Stream
from metronome_cli.measure.ledger import FrameRecord
from metronome_cli.targets.endpoint import Endpoint, KnockError, why_closed
from metronome_cli.targets.protocols import events

PIECE_S = 0.080  # longest piece of audio in one message
WATCH_S = 0.25
GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Beat:
    """How a session is paced and when it has lost."""

    period_s: float
    give_up_s: float
    backlog_limit: int

    @property
    def pieces(self) -> int:
        """Messages a frame."""
        return max(1, math.ceil(self.period_s / PIECE_S - 1e-9))


@dataclass(frozen=True, slots=True)
class Seated:
    """The handshake is over, after `wait_s`."""

    index: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class Paced:
    """One frame went out, `late_s` after its planned time."""

    due_s: float
    late_s: float


@dataclass(frozen=True, slots=True)
class Lagged:
    """The server's own account of its backlog."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The session is over."""

    index: int
    reason: EndReason
    detail: str
    sent_s: float
    heard_s: float


News = Seated | Paced | Lagged | Ended | FrameRecord


class OverError(Exception):
    """The session ends here."""

    def __init__(self, reason: EndReason, detail: str = "") -> None:
        super().__init__(detail)
        self.reason: EndReason = reason
        self.detail = detail


class WireSession:
    """A caller. `now` is the run's clock, `tell` takes its news, `lifetime_s` counts from its first sample."""

    def __init__(
        self,
        index: int,
        endpoint: Endpoint,
        stream: Stream,
        beat: Beat,
        *,
        phase_s: float,
        lifetime_s: float,
        now: Callable[[], float],
        tell: Callable[[News], None],
    ) -> None:
        self.index = index
        self.endpoint = endpoint
        self.answers = Answers(index, endpoint.traits, beat.period_s, beat.give_up_s)
        self.next_due_s = math.inf  # planned time of the frame that is sent next
        self._stream = stream
        self._beat = beat
        self._phase_s = phase_s
        self._lifetime_s = lifetime_s
        self._now = now
        self._tell = tell
        self._codec = endpoint.codec()
        self._ready = asyncio.Event()
        self._started_s = 0.0
        self._sending_since: float | None = None
        self._messages = 0

    @property
    def horizon_s(self) -> float:
        """No record of a frame due before this instant is still to come."""
        return min(self.answers.oldest_due_s, self.next_due_s)

    async def live(self, gate: asyncio.Event) -> None:
        """The whole session; audio starts when the gate is open. Tells its end, whatever happens."""
        reason: EndReason = "shed"
        detail = ""
        try:
            await self._live(gate)
        except (OverError, KnockError) as over:
            reason, detail = over.reason, over.detail
        finally:
            self.next_due_s = math.inf
            sent_s = self.answers.sent_frames * self._beat.period_s
            self._tell(Ended(self.index, reason, detail, sent_s, self.answers.heard_s))

    async def _live(self, gate: asyncio.Event) -> None:
        began = self._now()
        socket = await self.endpoint.connect()
        try:
            parts = [self._listen(socket), self._watch(socket), self._speak(socket, gate, began)]
            await first_to_end(parts)
        finally:
            await leave(socket)

    async def _speak(self, socket: ClientConnection, gate: asyncio.Event, began_s: float) -> None:
        for message in self._codec.opening():
            await self._send(socket, message)
        try:
            async with asyncio.timeout(self.endpoint.limits.ready_s):
                await self._ready.wait()
        except TimeoutError:
            raise OverError("queued", f"no seat in {self.endpoint.limits.ready_s:g} s, and no word") from None
        self._tell(Seated(self.index, self._now() - began_s))
        for message in self._codec.started():
            await self._send(socket, message)
        await gate.wait()
        await self._pace(socket, self._now() + self._phase_s)
        for message in self._codec.closing():
            await self._send(socket, message)
        raise OverError("finished")

    async def _pace(self, socket: ClientConnection, start_s: float) -> None:
        self._started_s = start_s
        beat, pieces = self._beat, self._beat.pieces
        frame = 0
        while frame * beat.period_s < self._lifetime_s:
            audio = self._stream.frame(frame)
            self.next_due_s = start_s + (frame + 1) * beat.period_s
            for piece in range(pieces):
                part = audio[len(audio) * piece // pieces : len(audio) * (piece + 1) // pieces]
                messages = self._codec.audio(part)
                due_s = start_s + (frame + (piece + 1) / pieces) * beat.period_s
                await asyncio.sleep(due_s - self._now())
                late_s = self._now() - due_s
                for message in messages:
                    await self._send(socket, message)
            self.answers.sent(self.next_due_s)
            self._tell(Paced(self.next_due_s, late_s))
            frame += 1

    async def _send(self, socket: ClientConnection, message: events.Message) -> None:
        self._sending_since = self._now()
        try:
            await socket.send(message)
        except ConnectionClosed as error:
            raise OverError(*why_closed(error, seated=self._ready.is_set())) from None
        self._sending_since = None

    async def _listen(self, socket: ClientConnection) -> None:
        try:
            async for message in socket:
                self._messages += 1
                for event in self._codec.read(message):
                    self._take(event)
                if self._messages > self.endpoint.limits.messages_per_s:
                    raise OverError("flood", f"more than {self._messages - 1} messages a second")
            raise OverError(
                "closed" if self._ready.is_set() else "refused",
                events.clipped(f"closed by the server, code {socket.close_code} {socket.close_reason or ''}"),
            )
        except ConnectionClosed as error:
            raise OverError(*why_closed(error, seated=self._ready.is_set())) from None

    def _take(self, event: events.Event) -> None:
        now = self._now()
        if isinstance(event, events.Output):
            for record in self.answers.output(now, event.seconds):
                self._tell(record)
        elif isinstance(event, events.Ready):
            self._ready.set()
        elif isinstance(event, events.Turn):
            self.answers.turn(event.speaking)
        elif isinstance(event, events.Backlog):
            self._tell(Lagged(event.seconds))
        elif isinstance(event, events.Echo):
            reached = self._started_s + event.pieces * self._beat.period_s / self._beat.pieces
            self._tell(Lagged(max(0.0, now - reached)))
        elif isinstance(event, events.Refused):
            raise OverError("refused", event.why)
        elif isinstance(event, events.Failed):
            raise OverError("error", event.why)
        else:
            raise OverError("garbage", event.what)

    async def _watch(self, socket: ClientConnection) -> None:
        """Looks for what does not happen."""
        limits, answers = self.endpoint.limits, self.answers
        second = 0.0
        await asyncio.sleep(WATCH_S * (self.index * GOLDEN % 1.0))  # not everybody's at the same instant
        while True:
            await asyncio.sleep(WATCH_S)
            now = self._now()
            for record in answers.expire(now):
                self._tell(record)
            if now - second >= 1.0:
                second, self._messages = now, 0
            since = self._sending_since if socket.state is State.OPEN else None  # else _listen knows why
            if since is not None and now - since > limits.stall_s:
                raise OverError("stalled", f"one message was not taken in {limits.stall_s:g} s")
            quiet_s = now - max(answers.last_output_s or 0.0, self._started_s)
            if answers.sent_frames and quiet_s > limits.idle_s:
                raise OverError("mute", f"no output for {limits.idle_s:g} s")
            if answers.behind_frames > self._beat.backlog_limit and quiet_s < self._beat.give_up_s:
                raise OverError("lost_beat", f"{answers.behind_frames} frames of output behind")
            if answers.heard_s > 4 * answers.sent_frames * self._beat.period_s + 60.0:
                raise OverError("flood", f"{answers.heard_s:.0f} s of output to less than a quarter of input")


async def first_to_end(parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines side by side until one raises; the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def leave(socket: ClientConnection) -> None:
    """Close in good order, within a second; then by force, so that whatever waits on the socket comes back."""
    closing = asyncio.ensure_future(socket.close())
    try:
        await asyncio.wait([closing], timeout=1.0)
    finally:
        socket.transport.abort()
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
