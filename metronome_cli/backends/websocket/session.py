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
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec

from websockets.exceptions import ConnectionClosedOK

from metronome_cli.backends.streaming.pacing import Pacing
from metronome_cli.backends.streaming.schedule import SendSchedule
from metronome_cli.backends.websocket.answers import AnswerMatcher
from metronome_cli.backends.websocket.connection import (
    SessionConnection,
    close_within_1s,
    frame_messages,
    reset,
)
from metronome_cli.backends.websocket.endpoint import Endpoint, why_closed
from metronome_cli.backends.websocket.heard import call_events, sound_of
from metronome_cli.backends.websocket.message_cache import EncodedLoop, MessageCache, MessageSource
from metronome_cli.backends.websocket.playback_answers import PlaybackMatcher
from metronome_cli.backends.websocket.reconnect import reconnect_delay_s, should_reconnect
from metronome_cli.backends.websocket.timers import TimerQueue
from metronome_cli.backends.websocket.watchdog import SessionWatchdog
from metronome_cli.core.call_events import CallEvent, CallEventKind
from metronome_cli.core.session import (
    AudioStream,
    BacklogReported,
    FrameResult,
    FrameSent,
    HostEvent,
    MessagesCounted,
    MisbehavedEnded,
    Reconnected,
    SessionEnded,
    SessionStarted,
)
from metronome_cli.core.types import EndReason, SessionOver
from metronome_cli.load.misbehaving import Behaviour
from metronome_cli.protocols import messages
from metronome_cli.protocols.interface import AnswerRule

WATCH_S = 0.25
RESET_SHARE = 0.5  # of a session's life, after which it breaks its connection off
RESET_WITHIN_S = 60.0
LONGEST_S = 1e8  # that a timer is set for
PLANNED = ("completed", "shed")
COUNT_EVERY_S = 2.0  # between two counts of what came besides answers
P = ParamSpec("P")


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


@dataclass(slots=True)
class HostContext:
    """What the sessions of one event loop share. `now` is the run's clock; `open` is set when audio may start."""

    endpoint: Endpoint
    beat: Pacing
    now: Callable[[], float]
    tell: Callable[[HostEvent], None]
    wheel: TimerQueue
    open: asyncio.Event = field(default_factory=asyncio.Event)
    shelf: MessageCache = field(default_factory=MessageCache)
    loop: EncodedLoop | None = None


def _matcher(session: int, rule: AnswerRule, beat: Pacing) -> AnswerMatcher | PlaybackMatcher:
    if rule.kind == "playback":
        return PlaybackMatcher(session, beat.period_s, beat.give_up_s)
    return AnswerMatcher(session, rule, beat.period_s, beat.give_up_s)


class WebsocketSession:
    """A caller. `lifetime_s` counts from its first sample."""

    def __init__(
        self,
        index: int,
        hall: HostContext,
        stream: AudioStream,
        *,
        phase_s: float,
        lifetime_s: float,
        behaviour: Behaviour | None = None,
        planned: Callable[[float], Iterator[CallEvent]] | None = None,
    ) -> None:
        self.index = index
        self._hall = hall
        self._now = hall.now
        self._behaviour = behaviour
        self._begun_s = 0.0
        self._tell: Callable[[HostEvent], None] = hall.tell if behaviour is None else self._tell_unjudged
        self._limits = hall.endpoint.limits
        self._stream = stream
        self._phase_s = phase_s
        self._planned = planned
        self._next_planned: CallEvent | None = None  # the next thing that the script has the user do
        self._script: Iterator[CallEvent] = iter(())
        self._listens = sound_of(hall.endpoint.traits) != "none"
        self._plan = SendSchedule(hall.beat, lifetime_s)
        self._patience = SessionWatchdog(hall.endpoint.limits, hall.beat)
        self._over: asyncio.Future[SessionOver] | None = None
        self._act: Callable[[], None] = lambda: None
        self._line: SessionConnection | None = None
        self._since_s = 0.0  # when audio began on this connection
        self._from_piece = 0  # the first on this connection
        self._connection = 0
        self._sent_frames = 0  # on earlier connections
        self._heard_s = 0.0
        self._ahead = b""
        self._queue: list[messages.Queued] = []
        self._names: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._silent_s = self._sound_s = 0.0
        self._next_count_s = 0.0
        self._watched_s = 0.0
        self._fresh()

    def _fresh(self) -> None:
        """Everything that belongs to one connection."""
        hall, beat = self._hall, self._hall.beat
        self.answers = _matcher(self.index, hall.endpoint.answers, beat)
        self._piece_s = beat.period_s / beat.pieces
        self._last_error = ""
        self._owed_replies: list[messages.Message] = []
        self._line = None
        self._codec = hall.endpoint.codec()
        self._talk = MessageSource(self._stream, self._codec, beat.pieces, hall.shelf, hall.loop)
        self._seated = asyncio.Event()
        self._patience.renew()

    @property
    def horizon_s(self) -> float:
        """No record of a frame due before this instant is still to come."""
        return min(self.answers.oldest_due_s, self._plan.next_due_s)

    async def live(self) -> None:
        """The whole session. Tells its end, whatever happens."""
        reason: EndReason = "shed"
        detail = ""
        try:
            await self._live()
        except SessionOver as over:
            reason, detail = over.reason, self._hall.endpoint.without_secrets(over.detail)
        except (
            Exception
        ) as error:  # a bug in this process; no code awaits this task, so it is sent as an event
            reason, detail = "generator_error", _named(error)
        finally:
            self._plan.next_due_s = math.inf
            self._tell_messages()
            sent_s = (self._sent_frames + self.answers.sent_frames) * self._hall.beat.period_s
            received_s = self._heard_s + self.answers.heard_s
            self._tell(SessionEnded(self.index, reason, detail, self._now(), sent_s, received_s))

    async def _live(self) -> None:
        """One connection after the other, as far as the policy goes."""
        lost: SessionOver | None = None
        vain = 0  # knocks since the last seat
        while True:
            try:
                await self._connect(lost)
            except SessionOver as over:
                seated = self._seated.is_set()
                vain = 0 if seated else vain + 1
                lost = over if seated else lost
                if not self._returns(over.reason, seated):
                    raise
            await self._pause(vain)
            self._sent_frames += self.answers.sent_frames
            self._heard_s += self.answers.heard_s
            self._connection += 1
            self._fresh()

    async def _connect(self, lost: SessionOver | None) -> None:
        """A connection and all that happens on it; ends by raising why. `lost`: how the last one ended."""
        began_s = self._now()
        self._over = asyncio.get_running_loop().create_future()
        make = functools.partial(
            SessionConnection, hear=self._guarded(self._hear), gone=self._guarded(self._gone)
        )
        socket = await self._hall.endpoint.connect(make)
        assert isinstance(socket, SessionConnection)
        self._line = socket
        try:
            socket.put(frame_messages([*self._codec.opening(), *self._owed_replies]))
            await self._unless_over(self._seat())
            if lost is None:
                self._tell(SessionStarted(self.index, self._now() - began_s))
            else:
                self._tell(Reconnected(self.index, lost.reason, lost.detail))
            socket.put(frame_messages(self._codec.started()))
            await self._unless_over(self._hall.open.wait())
            self._begin()
            raise await self._over
        finally:
            self._end("shed")
            if socket.open:
                socket.put(frame_messages(self._codec.leaving()))
            await close_within_1s(socket)

    # -- coming back --------------------------------------------------------------------------------------------

    def _returns(self, reason: EndReason, seated: bool) -> bool:
        again = should_reconnect(self._limits.reconnect, reason, seated=seated, returned=self._connection > 0)
        return again and self._plan.within(self._now())

    async def _pause(self, vain: int) -> None:
        until_s = self._now() + reconnect_delay_s(vain)
        self._miss()
        while (rest_s := until_s - self._now()) > 0:
            await asyncio.sleep(min(rest_s, WATCH_S))
            self._miss()

    def _miss(self) -> None:
        """Frames that nothing answers, up to now."""
        for record in self.answers.give_up():
            self._tell(record)
        for due_s in self._plan.pass_over(self._now()):
            for record in self.answers.missed(due_s):
                self._tell(record)

    async def _seat(self) -> None:
        try:
            async with asyncio.timeout(self._limits.ready_s):
                await self._seated.wait()
        except TimeoutError:
            raise SessionOver("queue_timeout", self._why_queued()) from None

    def _why_queued(self) -> str:
        """Whether the server told the session that it waits, and where it stood."""
        waited = f"not ready in {self._limits.ready_s:g} s"
        if not self._queue:
            return f"{waited}, and no word"
        first, last = self._queue[0], self._queue[-1]
        promised = "" if first.wait_s is None else f", told {first.wait_s:g} s"
        return f"{waited}: told place {first.position}, then {last.position}{promised}"

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
            self._over.set_result(SessionOver(reason, self._hall.endpoint.without_secrets(detail)))
            if self._listens and self._seated.is_set():
                kind = CallEventKind.ENDED if reason in PLANNED else CallEventKind.GONE
                self._tell(CallEvent(self.index, self._now(), kind))

    def _guarded(self, act: Callable[P, None]) -> Callable[P, None]:
        """The same act; what it raises ends this session, and no other, as a failure of the load generator."""

        def guarded(*values: P.args, **options: P.kwargs) -> None:
            try:
                act(*values, **options)
            except Exception as error:  # a bug in this process: the event loop would only log it
                self._end("generator_error", _named(error))

        return guarded

    @property
    def _alive(self) -> bool:
        return self._over is not None and not self._over.done()

    # -- speaking -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        plan = self._plan
        if plan.started_s is None:
            plan.started_s = self._now() + self._phase_s
            if self._planned is not None:
                self._script = self._planned(plan.started_s)
                self._next_planned = next(self._script)
        else:
            self._miss()
        self._since_s = self._watched_s = max(plan.started_s, self._now())
        self._from_piece = plan.piece
        self._act = functools.partial(self._guarded(self._send), self._connection)
        self._patience.start(self._now())
        if self._behaviour is not None:
            self._misbehave(self._behaviour)
            return
        self._prepare()

    def _tell_unjudged(self, event: HostEvent) -> None:
        """Of a session that misbehaves only its start and its end are told."""
        if isinstance(event, SessionEnded):
            by_server = self._seated.is_set() and event.reason not in PLANNED
            if self._behaviour is not None and self._begun_s:
                held_s = self._now() - self._begun_s
                told = MisbehavedEnded(self.index, self._behaviour, held_s, by_server, event.detail)
                self._hall.tell(told)
            if by_server:
                event = replace(event, reason="completed", detail="")
        if isinstance(event, SessionStarted | SessionEnded):
            self._hall.tell(event)

    def _misbehave(self, behaviour: Behaviour) -> None:
        """From now on, until the session's time is over or the server ends it."""
        assert self._line is not None
        self._begun_s, now_s = self._now(), self._now()
        self._plan.next_due_s = math.inf
        length_s = self._plan.lifetime_s
        if behaviour in ("dead", "stall"):
            self._line.transport.pause_reading()
        if behaviour == "stall":
            self._prepare()
        elif behaviour == "reset":
            self._prepare()
            self._hall.wheel.at(now_s + RESET_SHARE * min(length_s, RESET_WITHIN_S), self._reset_connection)
        else:
            self._hall.wheel.at(now_s + min(length_s, LONGEST_S), lambda: self._end("completed"))

    def _reset_connection(self) -> None:
        if self._line is not None and self._alive:
            self._end("completed")
            reset(self._line)

    def _prepare(self) -> None:
        """Encode the next piece, and have it sent in its time."""
        following = self._plan.next_piece()
        if following is None:
            assert self._line is not None
            self._line.put(frame_messages(self._codec.closing()))
            self._end("completed")
            return
        self._ahead = self._talk.piece(*following)
        self._hall.wheel.at(self._plan.due_s(self._plan.piece + 1), self._act)

    def _send(self, connection: int) -> None:
        line, plan = self._line, self._plan
        if line is None or not self._alive or connection != self._connection:
            return
        due_s = plan.due_s(plan.piece + 1)
        if line.open:
            line.put(self._ahead)
        now = self._now()
        self.answers.sent_audio(self._piece_s)
        self._tell_planned(due_s + self._hall.beat.period_s)
        if plan.sent():
            self.answers.sent(plan.next_due_s)
            self._tell(FrameSent(plan.next_due_s, now - due_s))
        if now - self._watched_s >= WATCH_S:
            self._watched_s = now
            self._watch(line, now)
        if self._alive:
            self._prepare()

    def _tell_planned(self, until_s: float) -> None:
        """Tell what the user does next a period ahead, so that no answer is known before it."""
        while self._next_planned is not None and self._next_planned.at_s <= until_s:
            self._tell(self._next_planned)
            self._next_planned = next(self._script, None)

    # -- listening ----------------------------------------------------------------------------------------------

    def _hear(self, message: messages.Message) -> None:
        if not self._alive:
            return
        now = self._now()
        if (tired := self._patience.message(now)) is not None:
            self._end(*tired)
            return
        for event in self._codec.read(message):
            for heard in call_events(self.index, now, event) if self._listens else ():
                self._tell(heard)
            self._take(event, now)

    def _gone(self) -> None:
        if self._line is None or not self._alive:
            return  # `connect` says why
        lost, seated = self._line.why, self._seated.is_set()
        if seated and self._last_error:
            self._end("server_error", self._last_error)  # what it said before it closed
        elif isinstance(lost, ConnectionClosedOK):
            code, said = self._line.close_code, self._line.close_reason or ""
            self._end(
                "connection_closed" if seated else "rejected",
                messages.clipped(f"closed by the server, code {code} {said}"),
            )
        else:
            self._end(*why_closed(lost, seated=seated))

    def _take(self, event: messages.ServerMessage, now: float) -> None:
        """What a message means for the frames; otherwise for the session."""
        if isinstance(event, messages.AudioOutput):
            self._sound_s += event.seconds
            self._silent_s += event.seconds if event.silent else 0.0
            self._tell_all(self.answers.output(now, event.seconds))
        elif isinstance(event, messages.UnitAnswered):
            self._tell_all(self.answers.unit(now, event.unit))
        elif isinstance(event, messages.ResponseActive):
            broken = event.status in ("failed", "incomplete")
            self._tell_all(self.answers.turn(event.speaking, now, cut_off=broken))
            if event.status == "cancelled":
                self.answers.interrupt()
        elif isinstance(event, messages.BacklogReported):
            self._tell(BacklogReported(event.seconds))
        elif isinstance(event, messages.MarkReached):
            planned_s = self._plan.due_s(self._from_piece + event.pieces)
            self._tell(BacklogReported(max(0.0, now - planned_s)))
        else:
            self._take_for_session(event)

    def _tell_all(self, records: list[FrameResult]) -> None:
        for record in records:
            self._tell(record)

    def _take_for_session(self, event: messages.ServerMessage) -> None:
        if isinstance(event, messages.Ready):
            self._seated.set()
        elif isinstance(event, messages.Reply):
            self._reply(event.messages)
        elif isinstance(event, messages.Queued):
            self._queue.append(event)
        elif isinstance(event, messages.Named):
            self._names[event.name] += 1
        elif isinstance(event, messages.SessionRejected):
            self._end("rejected", event.why)
        elif isinstance(event, messages.SessionClosed):
            self._end(event.reason, event.why)
        elif isinstance(event, messages.ServerError):
            self._take_error(event)
        elif isinstance(event, messages.ProtocolError):
            self._end("protocol_error", event.what)

    def _reply(self, replies: Sequence[messages.Message]) -> None:
        """Send what the protocol owes the server now, or once the connection is made."""
        if self._line is None:
            self._owed_replies.extend(replies)
        else:
            self._line.put(frame_messages(replies))

    def _take_error(self, error: messages.ServerError) -> None:
        """Most errors of a session that was ready leave it usable; what it says last is kept."""
        self._last_error = error.why
        self._errors[self._hall.endpoint.without_secrets(error.code)] += 1
        if error.fatal or not self._seated.is_set():
            self._end("server_error", error.why)

    def _tell_messages(self) -> None:
        """Count what came besides answers since the last call."""
        if self._names or self._errors or self._sound_s:
            counted = MessagesCounted(dict(self._names), dict(self._errors), self._silent_s, self._sound_s)
            self._names.clear()
            self._errors.clear()
            self._silent_s = self._sound_s = 0.0
            self._tell(counted)

    def _watch(self, line: SessionConnection, now: float) -> None:
        """Looks for what does not happen."""
        if now >= self._next_count_s:
            self._next_count_s = now + COUNT_EVERY_S
            self._tell_messages()
        for record in self.answers.expire(now):
            self._tell(record)
        if (tired := self._patience.look(line, self.answers, self._since_s, now)) is not None:
            self._end(*tired)
