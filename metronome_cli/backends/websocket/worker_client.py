"""Sessions in a worker process, as the run sees them. Commands go with the next request; its reply returns events.

A request is sent every 50 ms, so events arrive up to 50 ms late; their times are stamped in the worker. A worker that
ended, or does not reply within `REPLY_TIMEOUT_S`, is lost together with its sessions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from metronome_cli.backends.websocket.worker import CLOSE, WorkerCommand, WorkerReply
from metronome_cli.core.session import HostEvent, SessionEnded, SessionSpec

POLL_PERIOD_S = 0.05
REPLY_TIMEOUT_S = 15.0
START_S = 60.0  # for the first reply, since a process must start first
_NAP_S = 0.002


class WorkerLostError(Exception):
    """The worker has ended or does not reply."""


class WorkerChannel(Protocol):
    """Request channel to one worker. Methods raise WorkerLostError once it is lost."""

    name: str

    def ask(self, commands: Sequence[WorkerCommand]) -> None:
        """Send a request. Only one may be open."""

    def answer(self) -> WorkerReply | None:
        """Return the reply, or None if it has not arrived."""

    def end(self, timeout_s: float) -> None:
        """Wait for the worker to end, or kill it after the timeout."""


class WorkerClient:
    """Implements `SessionHost` on one worker."""

    def __init__(self, channel: WorkerChannel) -> None:
        self.lost: str | None = None
        self.cpu_share: float | None = None
        self.channel = channel
        self._commands: list[WorkerCommand] = []
        self._sent_s: float | None = None  # when the open request was sent
        self._next_s = 0.0
        self._has_replied = False  # at least once
        self._horizon_s = 0.0
        self._events: list[HostEvent] = []
        self._open: set[int] = set()
        self._last = False  # the open request is the last one
        self._ended = False
        self._terminated = False

    def open(self, session: SessionSpec) -> None:
        self._open.add(session.index)
        self._queue_command(("open", session.index, session.lifetime_s))

    def close_session(self, index: int) -> None:
        self._queue_command(("close_session", index, 0.0))

    def begin(self, at_s: float) -> None:
        self._queue_command(("begin", 0, at_s))

    def _queue_command(self, command: WorkerCommand) -> None:
        self._commands.append(command)
        self._next_s = 0.0

    def poll(self, take: Callable[[HostEvent], None]) -> None:
        self._exchange()
        events, self._events = self._events, []
        for event in events:
            take(event)

    def _exchange(self) -> None:
        """Read a reply if there is one; send the next request when due."""
        if self.lost is not None or self._ended:
            return
        now = time.perf_counter()
        try:
            if self._sent_s is not None:
                answer = self.channel.answer()
                if answer is not None:
                    self._on_reply(answer)
                elif now - self._sent_s > (REPLY_TIMEOUT_S if self._has_replied else START_S):
                    raise WorkerLostError(f"did not reply within {now - self._sent_s:.0f} s")
            if self._sent_s is None and not self._ended and now >= self._next_s:
                commands, self._commands = self._commands, []
                self._last = CLOSE in commands
                self._sent_s, self._next_s = now, now + POLL_PERIOD_S
                self.channel.ask(commands)
        except WorkerLostError as error:
            self._mark_lost(str(error))

    def _on_reply(self, answer: WorkerReply) -> None:
        self._sent_s, self._has_replied, self._ended = None, True, self._last
        self._horizon_s = answer.horizon_s
        self.cpu_share = answer.cpu_share
        if answer.more:
            self._next_s = 0.0
        for event in answer.events():
            if isinstance(event, SessionEnded):
                self._open.discard(event.session)
            self._events.append(event)

    def _mark_lost(self, why: str) -> None:
        self.lost = f"{self.channel.name} {why}"
        for index in sorted(self._open):
            self._events.append(SessionEnded(index, "shed", self.lost))
        self._open.clear()

    def drop(self, index: int) -> None:
        """Forget a session whose end has been reported."""
        self._open.discard(index)

    def horizon_s(self) -> float:
        return math.inf if self.lost is not None else self._horizon_s

    def start_closing(self) -> None:
        self._queue_command(CLOSE)
        self._exchange()

    def close(self) -> None:
        until = time.perf_counter() + REPLY_TIMEOUT_S
        while self.lost is None and not self._ended:
            if time.perf_counter() > until:
                self._mark_lost(f"did not end in {REPLY_TIMEOUT_S:g} s")
                break
            self._exchange()
            time.sleep(_NAP_S)
        if not self._terminated:
            self._terminated = True
            self.channel.end(0.0 if self.lost else REPLY_TIMEOUT_S)
