"""One live session over a websocket: knock, wait for the seat, pace the audio, listen, end for a named reason.

    finished      its time was over                    closed     the server or the network broke off
    shed          sent away by this side               garbage    not the protocol
    unreachable   no connection                        flood      more than anyone can say
    refused       turned away, and told so             mute       seated, and no output for `idle_s`
    queued        left waiting without a word          stalled    the server takes no more audio
    error         the server reported an error         lost_beat  output fell behind by the profile's limit

Audio is encoded ahead of its time. Send times come from the plan: the session's start, and whole pieces after it.
How late a frame went out is read after its bytes were handed to the kernel.

Nothing reconnects unless that is asked for. Then a session that spoke and whose connection broke off knocks again,
once or for as long as it lives, and goes on where its plan says; every frame that was due in between, or unanswered,
counts as empty.

A session is one task, which waits for its end; frames are sent by the wheel and read by the socket, without a
wake-up of their own.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from websockets.exceptions import ConnectionClosedOK

from metronome_cli.engine.types import EndReason
from metronome_cli.load.answers import Answers
from metronome_cli.load.line import Line, framed, leave
from metronome_cli.load.news import Ended, Lagged, News, Paced, Returned, Seated
from metronome_cli.load.opus_loop import OpusLoop
from metronome_cli.load.session import Stream
from metronome_cli.load.shelf import Shelf, Talk
from metronome_cli.load.wheel import Wheel
from metronome_cli.targets.endpoint import Endpoint, KnockError, why_closed
from metronome_cli.targets.protocols import events

PIECE_S = 0.080  # longest piece of audio in one message
WATCH_S = 0.25
PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # before a knock that follows one in vain; the last from then on
BROKEN_OFF: frozenset[EndReason] = frozenset({"closed", "stalled"})
IN_VAIN: frozenset[EndReason] = BROKEN_OFF | {"unreachable", "refused", "queued"}


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


@dataclass(slots=True)
class Hall:
    """What the sessions of one event loop share. `now` is the run's clock; `open` is set when audio may start."""

    endpoint: Endpoint
    beat: Beat
    now: Callable[[], float]
    tell: Callable[[News], None]
    wheel: Wheel
    open: asyncio.Event = field(default_factory=asyncio.Event)
    shelf: Shelf = field(default_factory=Shelf)
    loop: OpusLoop | None = None


class OverError(Exception):
    """The session ends here."""

    def __init__(self, reason: EndReason, detail: str = "") -> None:
        super().__init__(detail)
        self.reason: EndReason = reason
        self.detail = detail


class WireSession:
    """A caller. `lifetime_s` counts from its first sample."""

    def __init__(self, index: int, hall: Hall, stream: Stream, *, phase_s: float, lifetime_s: float) -> None:
        self.index = index
        self.answers = Answers(index, hall.endpoint.traits, hall.beat.period_s, hall.beat.give_up_s)
        self.next_due_s = math.inf  # planned time of the frame that is sent next
        self._hall = hall
        self._now = hall.now
        self._tell = hall.tell
        self._limits = hall.endpoint.limits
        self._codec = hall.endpoint.codec()
        self._talk = Talk(stream, self._codec, hall.beat.pieces, hall.shelf, hall.loop)
        self._stream = stream
        self._phase_s = phase_s
        self._piece_s = hall.beat.period_s / hall.beat.pieces
        self._frames = lifetime_s / hall.beat.period_s - 1e-9
        self._seated = asyncio.Event()
        self._over: asyncio.Future[OverError] | None = None
        self._act: Callable[[], None] = lambda: None
        self._line: Line | None = None
        self._started_s: float | None = None  # of the first sample's second
        self._since_s = 0.0  # when audio began on this connection
        self._from_piece = 0  # the first on this connection
        self._piece = 0  # sent next
        self._connection = 0
        self._sent_frames = 0  # on earlier connections
        self._heard_s = 0.0
        self._ahead = b""
        self._stuck_since: float | None = None
        self._watched_s = 0.0
        self._second_s = 0.0
        self._messages = 0

    @property
    def horizon_s(self) -> float:
        """No record of a frame due before this instant is still to come."""
        return min(self.answers.oldest_due_s, self.next_due_s)

    async def live(self) -> None:
        """The whole session. Tells its end, whatever happens."""
        reason: EndReason = "shed"
        detail = ""
        try:
            await self._live()
        except (OverError, KnockError) as over:
            reason, detail = over.reason, over.detail
        finally:
            self.next_due_s = math.inf
            sent_s = (self._sent_frames + self.answers.sent_frames) * self._hall.beat.period_s
            self._tell(Ended(self.index, reason, detail, sent_s, self._heard_s + self.answers.heard_s))

    async def _live(self) -> None:
        """One connection after the other, as far as the policy goes."""
        lost: OverError | KnockError | None = None
        vain = 0  # knocks since the last seat
        while True:
            try:
                await self._connect(lost)
            except (OverError, KnockError) as over:
                seated = self._seated.is_set()
                vain = 0 if seated else vain + 1
                lost = over if seated else lost
                if not self._returns(over.reason, seated):
                    raise
            await self._pause(vain)
            self._renew()

    async def _connect(self, lost: OverError | KnockError | None) -> None:
        """A connection and all that happens on it; ends by raising why. `lost`: how the last one ended."""
        began_s = self._now()
        self._over = asyncio.get_running_loop().create_future()
        make = functools.partial(Line, hear=self._hear, gone=self._gone)
        socket = await self._hall.endpoint.connect(make)
        assert isinstance(socket, Line)
        self._line = socket
        try:
            socket.put(framed(self._codec.opening()))
            await self._unless_over(self._seat())
            if lost is None:
                self._tell(Seated(self.index, self._now() - began_s))
            else:
                self._tell(Returned(self.index, lost.reason, lost.detail))
            socket.put(framed(self._codec.started()))
            await self._unless_over(self._hall.open.wait())
            self._begin()
            raise await self._over
        finally:
            self._end("shed")
            await leave(socket)

    # -- coming back --------------------------------------------------------------------------------------------

    def _returns(self, reason: EndReason, seated: bool) -> bool:
        policy, beat = self._limits.reconnect, self._hall.beat
        if policy == "none" or self._started_s is None or (policy == "once" and self._connection):
            return False
        if reason not in (BROKEN_OFF if seated else IN_VAIN):
            return False
        return (self._now() - self._started_s) / beat.period_s < self._frames

    async def _pause(self, vain: int) -> None:
        until_s = self._now() + (PAUSES_S[min(vain, len(PAUSES_S)) - 1] if vain else 0.0)
        self._miss()
        while (rest_s := until_s - self._now()) > 0:
            await asyncio.sleep(min(rest_s, WATCH_S))
            self._miss()

    def _renew(self) -> None:
        """Everything that belongs to a connection, anew."""
        hall = self._hall
        self._sent_frames += self.answers.sent_frames
        self._heard_s += self.answers.heard_s
        self.answers = Answers(self.index, hall.endpoint.traits, hall.beat.period_s, hall.beat.give_up_s)
        self._codec = hall.endpoint.codec()
        self._talk = Talk(self._stream, self._codec, hall.beat.pieces, hall.shelf, hall.loop)
        self._seated = asyncio.Event()
        self._connection += 1
        self._stuck_since = None
        self._messages = 0

    def _miss(self) -> None:
        """Frames that nothing answers, up to now."""
        assert self._started_s is not None
        for record in self.answers.give_up():
            self._tell(record)
        period_s, pieces = self._hall.beat.period_s, self._hall.beat.pieces
        frame, now = self._piece // pieces, self._now()
        while frame < self._frames and (due_s := self._started_s + (frame + 1) * period_s) <= now:
            for record in self.answers.missed(due_s):
                self._tell(record)
            frame += 1
        self._piece = frame * pieces
        self.next_due_s = self._started_s + (frame + 1) * period_s if frame < self._frames else math.inf

    async def _seat(self) -> None:
        try:
            async with asyncio.timeout(self._limits.ready_s):
                await self._seated.wait()
        except TimeoutError:
            raise OverError("queued", f"no seat in {self._limits.ready_s:g} s, and no word") from None

    async def _unless_over(self, waiting: Coroutine[Any, Any, Any]) -> None:
        """Wait for it, unless the session's end comes first, which is raised."""
        assert self._over is not None
        task = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait([task, self._over], return_when=asyncio.FIRST_COMPLETED)
            if self._over.done():
                raise self._over.result()
            task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _end(self, reason: EndReason, detail: str = "") -> None:
        """The first reason counts."""
        if self._over is not None and not self._over.done():
            self._over.set_result(OverError(reason, detail))

    @property
    def _alive(self) -> bool:
        return self._over is not None and not self._over.done()

    # -- speaking -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._started_s is None:
            self._started_s = self._now() + self._phase_s
        else:
            self._miss()
        self._since_s = self._watched_s = max(self._started_s, self._now())
        self._from_piece = self._piece
        self._act = functools.partial(self._send, self._connection)
        self._prepare()

    def _prepare(self) -> None:
        """Encode the next piece, and have it sent in its time."""
        beat = self._hall.beat
        frame, piece = divmod(self._piece, beat.pieces)
        if piece == 0 and frame >= self._frames:
            assert self._line is not None
            self.next_due_s = math.inf
            self._line.put(framed(self._codec.closing()))
            self._end("finished")
            return
        self.next_due_s = self._due_s((frame + 1) * beat.pieces)
        self._ahead = self._talk.piece(frame, piece)
        self._hall.wheel.at(self._due_s(self._piece + 1), self._act)

    def _due_s(self, pieces: int) -> float:
        """When that many pieces are to have been sent."""
        assert self._started_s is not None
        return self._started_s + pieces * self._piece_s

    def _send(self, connection: int) -> None:
        line = self._line
        if line is None or not self._alive or connection != self._connection:
            return
        due_s = self._due_s(self._piece + 1)
        if line.open:
            line.put(self._ahead)
        now = self._now()
        self._piece += 1
        if self._piece % self._hall.beat.pieces == 0:
            self.answers.sent(self.next_due_s)
            self._tell(Paced(self.next_due_s, now - due_s))
        if now - self._watched_s >= WATCH_S:
            self._watched_s = now
            self._watch(line, now)
        if self._alive:
            self._prepare()

    # -- listening ----------------------------------------------------------------------------------------------

    def _hear(self, message: events.Message) -> None:
        if not self._alive:
            return
        now = self._now()
        self._messages += 1
        if self._messages > self._limits.messages_per_s:
            if now - self._second_s < 1.0:
                self._end("flood", f"more than {self._limits.messages_per_s} messages a second")
                return
            self._second_s, self._messages = now, 0
        for event in self._codec.read(message):
            self._take(event, now)

    def _gone(self) -> None:
        if self._line is None or not self._alive:
            return  # `connect` says why
        lost = self._line.why
        if isinstance(lost, ConnectionClosedOK):
            code, said = self._line.close_code, self._line.close_reason or ""
            self._end(
                "closed" if self._seated.is_set() else "refused",
                events.clipped(f"closed by the server, code {code} {said}"),
            )
        else:
            self._end(*why_closed(lost, seated=self._seated.is_set()))

    def _take(self, event: events.Event, now: float) -> None:
        if isinstance(event, events.Output):
            for record in self.answers.output(now, event.seconds):
                self._tell(record)
        elif isinstance(event, events.Ready):
            self._seated.set()
        elif isinstance(event, events.Turn):
            self.answers.turn(event.speaking)
        elif isinstance(event, events.Backlog):
            self._tell(Lagged(event.seconds))
        elif isinstance(event, events.Echo):
            self._tell(Lagged(max(0.0, now - self._due_s(self._from_piece + event.pieces))))
        elif isinstance(event, events.Refused):
            self._end("refused", event.why)
        elif isinstance(event, events.Failed):
            self._end("error", event.why)
        else:
            self._end("garbage", event.what)

    def _watch(self, line: Line, now: float) -> None:
        """Looks for what does not happen."""
        limits, answers, beat = self._limits, self.answers, self._hall.beat
        for record in answers.expire(now):
            self._tell(record)
        if not line.stuck:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > limits.stall_s:
            self._end("stalled", f"nothing was taken in {limits.stall_s:g} s")
        quiet_s = now - max(answers.last_output_s or 0.0, self._since_s)
        if answers.sent_frames and quiet_s > limits.idle_s:
            self._end("mute", f"no output for {limits.idle_s:g} s")
        if answers.behind_frames > beat.backlog_limit and quiet_s < beat.give_up_s:
            self._end("lost_beat", f"{answers.behind_frames} frames of output behind")
        if answers.heard_s > 4 * answers.sent_frames * beat.period_s + 60.0:
            self._end("flood", f"{answers.heard_s:.0f} s of output to less than a quarter of input")
