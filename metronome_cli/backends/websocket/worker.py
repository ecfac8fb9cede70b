"""A share of the sessions in a process of its own: it answers what it is asked, and speaks of nothing else.

Each question carries commands, each answer the news since the last one. The asking side decides how often, so that
nothing piles up on the way; the sockets run in their thread whether anybody asks or not.
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
MOST_NEWS = 2000  # in one answer: while it is made, the sockets wait for this thread again and again


@dataclass(slots=True)
class WorkerReply:
    """News in bulk; what comes with every frame as plain numbers. No frame due before `horizon_s` is still to come.

    `more`: there is news left that did not fit.
    """

    horizon_s: float = 0.0
    more: bool = False
    cpu_share: float | None = None
    records: array[float] = field(default_factory=lambda: array("d"))  # five a frame, as in FrameResult
    paced: array[float] = field(default_factory=lambda: array("d"))  # two a frame, as in Paced
    heard: array[float] = field(default_factory=lambda: array("d"))  # four per event, as in CallEvent
    backlogs: array[float] = field(default_factory=lambda: array("d"))
    rare: list[HostEvent] = field(default_factory=list)

    def add(self, news: HostEvent) -> None:
        """One more."""
        if isinstance(news, FrameResult):
            self.records.extend((news.session, news.due_s, news.done_s, news.expected, news.delivered))
        elif isinstance(news, FrameSent):
            self.paced.extend((news.due_s, news.late_s))
        elif isinstance(news, CallEvent):
            self.heard.extend((news.session, news.at_s, news.kind, news.value))
        elif isinstance(news, BacklogReported):
            self.backlogs.append(news.seconds)
        else:
            self.rare.append(news)

    def news(self) -> Iterator[HostEvent]:
        """All of it, sessions' ends last."""
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
    """Carries out commands on its share."""

    def __init__(self, order: HostSetup) -> None:
        self._share = SocketHost(order)
        self._now = self._share.clock.now
        self._horizon_s = 0.0

    def answer(self, commands: Sequence[WorkerCommand]) -> WorkerReply:
        """Do as told; the news since the last answer."""
        share = self._share
        for name, index, seconds in commands:
            if name == "open":
                share.open(SessionSpec(0.0, lifetime_s=seconds, index=index))
            elif name == "close_session":
                share.close_session(index)
            elif name == "begin":
                share.begin(seconds)
            else:
                share.close()
        horizon_s = min(self._now(), share.horizon_s())
        answer = WorkerReply(cpu_share=share.cpu_share)
        share.poll(self._noting(answer), None if CLOSE in commands else MOST_NEWS)
        answer.more = bool(share.inbox)
        if not answer.more:
            self._horizon_s = horizon_s
        answer.horizon_s = self._horizon_s
        return answer

    def _noting(self, answer: WorkerReply) -> Callable[[HostEvent], None]:
        def note(news: HostEvent) -> None:
            if isinstance(news, SessionEnded):
                self._share.drop(news.session)
            answer.add(news)

        return note

    def close(self) -> None:
        """Hang everybody up."""
        self._share.close()


def worker_main(pipe: Connection, order: HostSetup) -> None:
    """The whole life of a worker process: until it is told to close, or nobody is there to ask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the asking side says when to stop
    worker = Worker(order)
    try:
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            closing = False
            while not closing:
                commands: Sequence[WorkerCommand] = pipe.recv()
                closing = CLOSE in commands
                pipe.send(worker.answer(commands))
    finally:
        worker.close()
