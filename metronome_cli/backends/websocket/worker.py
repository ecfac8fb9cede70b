"""A worker process that holds a part of the sessions. It sends data only in reply to a request.

A request carries commands; a reply carries the events since the last reply. The main process sets the rate, so no
backlog builds up in the channel. The sockets run in their own thread, independent of requests.
"""

from __future__ import annotations

import contextlib
import signal
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from metronome_cli.backends.websocket.socket_host import HostSetup, SocketHost
from metronome_cli.core.call_events import CallEvent, CallEventKind
from metronome_cli.core.session import (
    BacklogReported,
    FrameResult,
    FrameSent,
    HostEvent,
    SessionEnded,
    SessionSpec,
)

WorkerCommand = tuple[
    str, int, float
]  # "open", index, lifetime; "close_session", index; "begin", clock; "close"
CLOSE: WorkerCommand = ("close", 0, 0.0)
MAX_EVENTS = 2000  # per reply; while it is built, this thread delays the socket thread


@dataclass(slots=True)
class WorkerReply:
    """Events since the last reply; frequent ones as plain numbers. All frames due before `horizon_s` are reported.

    `more`: further events did not fit.
    """

    horizon_s: float = 0.0
    more: bool = False
    cpu_share: float | None = None
    records: array[float] = field(default_factory=lambda: array("d"))  # 5 per frame, as in FrameResult
    paced: array[float] = field(default_factory=lambda: array("d"))  # 2 per frame, as in FrameSent
    heard: array[float] = field(default_factory=lambda: array("d"))  # 4 per event, as in CallEvent
    backlogs: array[float] = field(default_factory=lambda: array("d"))
    rare: list[HostEvent] = field(default_factory=list)

    def add(self, event: HostEvent) -> None:
        """Add an event."""
        if isinstance(event, FrameResult):
            self.records.extend((event.session, event.due_s, event.done_s, event.expected, event.delivered))
        elif isinstance(event, FrameSent):
            self.paced.extend((event.due_s, event.late_s))
        elif isinstance(event, CallEvent):
            self.heard.extend((event.session, event.at_s, event.kind, event.value))
        elif isinstance(event, BacklogReported):
            self.backlogs.append(event.seconds)
        else:
            self.rare.append(event)

    def events(self) -> Iterator[HostEvent]:
        """Yield all events, ends of sessions last."""
        frames, paced = self.records.tolist(), self.paced.tolist()
        for at in range(0, len(frames), 5):
            session, due_s, done_s, expected, delivered = frames[at : at + 5]
            yield FrameResult(int(session), due_s, done_s, int(expected), int(delivered))
        for at in range(0, len(paced), 2):
            yield FrameSent(paced[at], paced[at + 1])
        heard = self.heard.tolist()
        for at in range(0, len(heard), 4):
            session, at_s, kind, value = heard[at : at + 4]
            yield CallEvent(int(session), at_s, CallEventKind(int(kind)), value)
        yield from map(BacklogReported, self.backlogs)
        yield from self.rare


class Worker:
    """Executes commands on the sessions of this process."""

    def __init__(self, setup: HostSetup) -> None:
        self._host = SocketHost(setup)
        self._now = self._host.clock.now
        self._horizon_s = 0.0

    def answer(self, commands: Sequence[WorkerCommand]) -> WorkerReply:
        """Execute commands and return the events since the last reply."""
        host = self._host
        for name, index, seconds in commands:
            if name == "open":
                host.open(SessionSpec(0.0, lifetime_s=seconds, index=index))
            elif name == "close_session":
                host.close_session(index)
            elif name == "begin":
                host.begin(seconds)
            else:
                host.close()
        horizon_s = min(self._now(), host.horizon_s())
        answer = WorkerReply(cpu_share=host.cpu_share)
        host.poll(self._recorder(answer), None if CLOSE in commands else MAX_EVENTS)
        answer.more = bool(host.inbox)
        if not answer.more:
            self._horizon_s = horizon_s
        answer.horizon_s = self._horizon_s
        return answer

    def _recorder(self, answer: WorkerReply) -> Callable[[HostEvent], None]:
        def record(event: HostEvent) -> None:
            if isinstance(event, SessionEnded):
                self._host.drop(event.session)
            answer.add(event)

        return record

    def close(self) -> None:
        """End all sessions."""
        self._host.close()


def worker_main(pipe: Connection, setup: HostSetup) -> None:
    """Main function of a worker process. Returns after CLOSE, or when the main process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides when to stop
    worker = Worker(setup)
    try:
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            closing = False
            while not closing:
                commands: Sequence[WorkerCommand] = pipe.recv()
                closing = CLOSE in commands
                pipe.send(worker.answer(commands))
    finally:
        worker.close()
