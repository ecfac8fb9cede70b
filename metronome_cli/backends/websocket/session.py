"""One session over a websocket: connect, wait until ready, send paced audio, receive, end for a named reason.

        completed      the lifetime is over                   connection_closed  the server or the network closed it
    shed           closed by the load generator           protocol_error     a message violates the protocol
    unreachable    no connection                          excess_output      more output than a session can produce
    rejected       the server declined the session        no_output          ready, but no output for `idle_s`
    queue_timeout  not ready within `ready_s`             send_blocked       the server accepts no more audio
    server_error   the server reported an error           fell_behind        output is behind by the profile's limit

Audio is encoded before it is due. Send times are planned: the session's start plus whole pieces. The lateness of a
frame is read after its bytes were written to the socket.

A session reconnects only if the policy says so: once, or any number of times in its lifetime. It then continues at the
planned position. Each frame that was due in between, or unanswered, counts as empty.

A session is one task that waits for its end. Frames are sent by the timer queue and read in the socket's callback,
without waking the task.
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
RESET_SHARE = 0.5  # of a session's lifetime, after which it resets its connection
RESET_WITHIN_S = 60.0
LONGEST_S = 1e8  # s, longest timer
PLANNED = ("completed", "shed")
COUNT_EVERY_S = 2.0  # s, between reports of the messages that are not answers
P = ParamSpec("P")


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


@dataclass(slots=True)
class HostContext:
    """State shared by the sessions of one event loop. `now` is the trial clock; `open` is set when audio may start."""

    endpoint: Endpoint
    pacing: Pacing
    now: Callable[[], float]
    tell: Callable[[HostEvent], None]
    timers: TimerQueue
    open: asyncio.Event = field(default_factory=asyncio.Event)
    messages: MessageCache = field(default_factory=MessageCache)
    loop: EncodedLoop | None = None


def _matcher(session: int, rule: AnswerRule, pacing: Pacing) -> AnswerMatcher | PlaybackMatcher:
    if rule.kind == "playback":
        return PlaybackMatcher(session, pacing.period_s, pacing.give_up_s)
    return AnswerMatcher(session, rule, pacing.period_s, pacing.give_up_s)


class WebsocketSession:
    """A session on a server. `lifetime_s` counts from its first sample."""

    def __init__(
        self,
        index: int,
        shared: HostContext,
        stream: AudioStream,
        *,
        phase_s: float,
        lifetime_s: float,
        behaviour: Behaviour | None = None,
        planned: Callable[[float], Iterator[CallEvent]] | None = None,
    ) -> None:
        self.index = index
        self._shared = shared
        self._now = shared.now
        self._behaviour = behaviour
        self._misbehaved_since_s = 0.0
        self._tell: Callable[[HostEvent], None] = shared.tell if behaviour is None else self._tell_unjudged
        self._limits = shared.endpoint.limits
        self._stream = stream
        self._phase_s = phase_s
        self._planned = planned
        self._next_planned: CallEvent | None = None  # next event of the user in the script
        self._script: Iterator[CallEvent] = iter(())
        self._listens = sound_of(shared.endpoint.traits) != "none"
        self._plan = SendSchedule(shared.pacing, lifetime_s)
        self._watchdog = SessionWatchdog(shared.endpoint.limits, shared.pacing)
        self._end_cause: asyncio.Future[SessionOver] | None = None
        self._act: Callable[[], None] = lambda: None
        self._line: SessionConnection | None = None
        self._since_s = 0.0  # when audio began on this connection
        self._from_piece = 0  # first piece on this connection
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
        self._reset_connection_state()

    def _reset_connection_state(self) -> None:
        """Reset all state that belongs to one connection."""
        shared, pacing = self._shared, self._shared.pacing
        self.answers = _matcher(self.index, shared.endpoint.answers, pacing)
        self._piece_s = pacing.period_s / pacing.pieces
        self._last_error = ""
        self._owed_replies: list[messages.Message] = []
        self._line = None
        self._codec = shared.endpoint.codec()
        self._source = MessageSource(self._stream, self._codec, pacing.pieces, shared.messages, shared.loop)
        self._ready = asyncio.Event()
        self._watchdog.reset()

    @property
    def horizon_s(self) -> float:
        """All results of frames due before this instant have been reported."""
        return min(self.answers.oldest_due_s, self._plan.next_due_s)

    async def run(self) -> None:
        """Run the session from connecting to its end. Its end is always reported."""
        reason: EndReason = "shed"
        detail = ""
        try:
            await self._run()
        except SessionOver as over:
            reason, detail = over.reason, self._shared.endpoint.without_secrets(over.detail)
        except (
            Exception
        ) as error:  # a bug in this process; no code awaits this task, so it is sent as an event
            reason, detail = "generator_error", _named(error)
        finally:
            self._plan.next_due_s = math.inf
            self._tell_messages()
            sent_s = (self._sent_frames + self.answers.sent_frames) * self._shared.pacing.period_s
            received_s = self._heard_s + self.answers.heard_s
            self._tell(SessionEnded(self.index, reason, detail, self._now(), sent_s, received_s))

    async def _run(self) -> None:
        """Connect, and reconnect as far as the policy allows."""
        lost: SessionOver | None = None
        failed_attempts = 0  # since the session was last ready
        while True:
            try:
                await self._connect(lost)
            except SessionOver as over:
                ready = self._ready.is_set()
                failed_attempts = 0 if ready else failed_attempts + 1
                lost = over if ready else lost
                if not self._returns(over.reason, ready):
                    raise
            await self._pause(failed_attempts)
            self._sent_frames += self.answers.sent_frames
            self._heard_s += self.answers.heard_s
            self._connection += 1
            self._reset_connection_state()

    async def _connect(self, lost: SessionOver | None) -> None:
        """Run one connection. Always raises SessionOver. `lost`: the end of the previous connection."""
        began_s = self._now()
        self._end_cause = asyncio.get_running_loop().create_future()
        make = functools.partial(
            SessionConnection,
            on_message=self._guarded(self._on_message),
            on_lost=self._guarded(self._on_connection_lost),
        )
        socket = await self._shared.endpoint.connect(make)
        assert isinstance(socket, SessionConnection)
        self._line = socket
        try:
            socket.put(frame_messages([*self._codec.opening(), *self._owed_replies]))
            await self._unless_over(self._wait_until_ready())
            if lost is None:
                self._tell(SessionStarted(self.index, self._now() - began_s))
            else:
                self._tell(Reconnected(self.index, lost.reason, lost.detail))
            socket.put(frame_messages(self._codec.started()))
            await self._unless_over(self._shared.open.wait())
            self._begin()
            raise await self._end_cause
        finally:
            self._end("shed")
            if socket.open:
                socket.put(frame_messages(self._codec.leaving()))
            await close_within_1s(socket)

    # -- reconnecting -------------------------------------------------------------------------------------------

    def _returns(self, reason: EndReason, ready: bool) -> bool:
        again = should_reconnect(self._limits.reconnect, reason, ready=ready, returned=self._connection > 0)
        return again and self._plan.within(self._now())

    async def _pause(self, failed_attempts: int) -> None:
        until_s = self._now() + reconnect_delay_s(failed_attempts)
        self._mark_missed_frames()
        while (rest_s := until_s - self._now()) > 0:
            await asyncio.sleep(min(rest_s, WATCH_S))
            self._mark_missed_frames()

    def _mark_missed_frames(self) -> None:
        """Report the frames without an answer up to now."""
        for record in self.answers.give_up():
            self._tell(record)
        for due_s in self._plan.pass_over(self._now()):
            for record in self.answers.missed(due_s):
                self._tell(record)

    async def _wait_until_ready(self) -> None:
        try:
            async with asyncio.timeout(self._limits.ready_s):
                await self._ready.wait()
        except TimeoutError:
            raise SessionOver("queue_timeout", self._why_queued()) from None

    def _why_queued(self) -> str:
        """Describe what the server reported about its queue."""
        waited = f"not ready in {self._limits.ready_s:g} s"
        if not self._queue:
            return f"{waited}; the server reported no queue"
        first, last = self._queue[0], self._queue[-1]
        promised = "" if first.wait_s is None else f", estimated wait {first.wait_s:g} s"
        return f"{waited}: queue position {first.position}, then {last.position}{promised}"

    async def _unless_over(self, waiting: Coroutine[Any, Any, Any]) -> None:
        """Wait for a coroutine. Raises SessionOver if the session ends first."""
        assert self._end_cause is not None
        task = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait([task, self._end_cause], return_when=asyncio.FIRST_COMPLETED)
            if self._end_cause.done():
                raise self._end_cause.result()
            task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _end(self, reason: EndReason, detail: str = "") -> None:
        """End the session. Only the first reason counts."""
        if self._end_cause is not None and not self._end_cause.done():
            self._end_cause.set_result(SessionOver(reason, self._shared.endpoint.without_secrets(detail)))
            if self._listens and self._ready.is_set():
                kind = CallEventKind.ENDED if reason in PLANNED else CallEventKind.GONE
                self._tell(CallEvent(self.index, self._now(), kind))

    def _guarded(self, act: Callable[P, None]) -> Callable[P, None]:
        """Wrap a callback: an exception ends only this session, as an error of the load generator."""

        def guarded(*values: P.args, **options: P.kwargs) -> None:
            try:
                act(*values, **options)
            except Exception as error:  # a bug in this process: the event loop would only log it
                self._end("generator_error", _named(error))

        return guarded

    @property
    def _alive(self) -> bool:
        return self._end_cause is not None and not self._end_cause.done()

    # -- sending ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        plan = self._plan
        if plan.started_s is None:
            plan.started_s = self._now() + self._phase_s
            if self._planned is not None:
                self._script = self._planned(plan.started_s)
                self._next_planned = next(self._script)
        else:
            self._mark_missed_frames()
        self._since_s = self._watched_s = max(plan.started_s, self._now())
        self._from_piece = plan.piece
        self._act = functools.partial(self._guarded(self._send), self._connection)
        self._watchdog.start(self._now())
        if self._behaviour is not None:
            self._misbehave(self._behaviour)
            return
        self._prepare()

    def _tell_unjudged(self, event: HostEvent) -> None:
        """Report only the start and the end of a session that misbehaves."""
        if isinstance(event, SessionEnded):
            by_server = self._ready.is_set() and event.reason not in PLANNED
            if self._behaviour is not None and self._misbehaved_since_s:
                held_s = self._now() - self._misbehaved_since_s
                told = MisbehavedEnded(self.index, self._behaviour, held_s, by_server, event.detail)
                self._shared.tell(told)
            if by_server:
                event = replace(event, reason="completed", detail="")
        if isinstance(event, SessionStarted | SessionEnded):
            self._shared.tell(event)

    def _misbehave(self, behaviour: Behaviour) -> None:
        """Misbehave until the session's lifetime is over or the server ends it."""
        assert self._line is not None
        self._misbehaved_since_s, now_s = self._now(), self._now()
        self._plan.next_due_s = math.inf
        length_s = self._plan.lifetime_s
        if behaviour in ("dead", "stall"):
            self._line.transport.pause_reading()
        if behaviour == "stall":
            self._prepare()
        elif behaviour == "reset":
            self._prepare()
            self._shared.timers.at(
                now_s + RESET_SHARE * min(length_s, RESET_WITHIN_S), self._reset_connection
            )
        else:
            self._shared.timers.at(now_s + min(length_s, LONGEST_S), lambda: self._end("completed"))

    def _reset_connection(self) -> None:
        if self._line is not None and self._alive:
            self._end("completed")
            reset(self._line)

    def _prepare(self) -> None:
        """Encode the next piece and schedule it."""
        following = self._plan.next_piece()
        if following is None:
            assert self._line is not None
            self._line.put(frame_messages(self._codec.closing()))
            self._end("completed")
            return
        self._ahead = self._source.piece(*following)
        self._shared.timers.at(self._plan.due_s(self._plan.piece + 1), self._act)

    def _send(self, connection: int) -> None:
        line, plan = self._line, self._plan
        if line is None or not self._alive or connection != self._connection:
            return
        due_s = plan.due_s(plan.piece + 1)
        if line.open:
            line.put(self._ahead)
        now = self._now()
        self.answers.sent_audio(self._piece_s)
        self._tell_planned(due_s + self._shared.pacing.period_s)
        if plan.sent():
            self.answers.sent(plan.next_due_s)
            self._tell(FrameSent(plan.next_due_s, now - due_s))
        if now - self._watched_s >= WATCH_S:
            self._watched_s = now
            self._check_timeouts(line, now)
        if self._alive:
            self._prepare()

    def _tell_planned(self, until_s: float) -> None:
        """Report the user's events one period ahead, so that each is known before its answer."""
        while self._next_planned is not None and self._next_planned.at_s <= until_s:
            self._tell(self._next_planned)
            self._next_planned = next(self._script, None)

    # -- receiving ----------------------------------------------------------------------------------------------

    def _on_message(self, message: messages.Message) -> None:
        if not self._alive:
            return
        now = self._now()
        if (ended := self._watchdog.message(now)) is not None:
            self._end(*ended)
            return
        for event in self._codec.read(message):
            for heard in call_events(self.index, now, event) if self._listens else ():
                self._tell(heard)
            self._on_server_message(event, now)

    def _on_connection_lost(self) -> None:
        if self._line is None or not self._alive:
            return  # `connect` reports the reason
        lost, ready = self._line.close_error, self._ready.is_set()
        if ready and self._last_error:
            self._end("server_error", self._last_error)  # the last error before it closed
        elif isinstance(lost, ConnectionClosedOK):
            code, said = self._line.close_code, self._line.close_reason or ""
            self._end(
                "connection_closed" if ready else "rejected",
                messages.clipped(f"closed by the server, code {code} {said}"),
            )
        else:
            self._end(*why_closed(lost, ready=ready))

    def _on_server_message(self, event: messages.ServerMessage, now: float) -> None:
        """Apply a server message to the frames, or else to the session."""
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
            self._ready.set()
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
        """Send replies that the protocol requires, now or once connected."""
        if self._line is None:
            self._owed_replies.extend(replies)
        else:
            self._line.put(frame_messages(replies))

    def _take_error(self, error: messages.ServerError) -> None:
        """Record an error. A ready session continues unless the error is fatal."""
        self._last_error = error.why
        self._errors[self._shared.endpoint.without_secrets(error.code)] += 1
        if error.fatal or not self._ready.is_set():
            self._end("server_error", error.why)

    def _tell_messages(self) -> None:
        """Report the messages other than answers since the last call."""
        if self._names or self._errors or self._sound_s:
            counted = MessagesCounted(dict(self._names), dict(self._errors), self._silent_s, self._sound_s)
            self._names.clear()
            self._errors.clear()
            self._silent_s = self._sound_s = 0.0
            self._tell(counted)

    def _check_timeouts(self, line: SessionConnection, now: float) -> None:
        """Check for timeouts and overdue frames."""
        if now >= self._next_count_s:
            self._next_count_s = now + COUNT_EVERY_S
            self._tell_messages()
        for record in self.answers.expire(now):
            self._tell(record)
        if (ended := self._watchdog.check(line, self.answers, self._since_s, now)) is not None:
            self._end(*ended)
