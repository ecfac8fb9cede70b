"""Sessions in a worker, as the run sees them: commands go with the next question, news come with its answer.

Asked twenty times a second, so what is known of a frame is up to a twentieth of a second old; its times are the
worker's own. A worker that is gone, or does not answer for `PATIENCE_S`, is lost, and its sessions with it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from metronome_cli.backends.websocket.worker import CLOSE, WorkerCommand, WorkerReply
from metronome_cli.core.session import HostEvent, SessionEnded, SessionSpec

EVERY_S = 0.05
PATIENCE_S = 15.0
START_S = 60.0  # for the first answer: a process starts, a machine far away even more slowly
_NAP_S = 0.002


class WorkerLostError(Exception):
    """The worker is gone."""


class WorkerChannel(Protocol):
    """The way to one worker. Raises LostError once it is gone."""

    name: str

    def ask(self, commands: Sequence[WorkerCommand]) -> None:
        """Send a question; one at a time."""

    def answer(self) -> WorkerReply | None:
        """Its answer, when it is there."""

    def end(self, patience_s: float) -> None:
        """Let it end, or make it."""


class WorkerClient:
    """One worker's sessions."""

    def __init__(self, post: WorkerChannel) -> None:
        self.lost: str | None = None
        self.cpu_share: float | None = None
        self.post = post
        self._commands: list[WorkerCommand] = []
        self._asked_s: float | None = None  # the question that is out
        self._next_s = 0.0
        self._heard = False  # anything yet
        self._horizon_s = 0.0
        self._box: list[HostEvent] = []
        self._open: set[int] = set()
        self._last = False  # the question that is out is the last one
        self._ended = False
        self._let_go = False

    def open(self, session: SessionSpec) -> None:
        self._open.add(session.index)
        self._tell(("open", session.index, session.lifetime_s))

    def close_session(self, index: int) -> None:
        self._tell(("close_session", index, 0.0))

    def begin(self, at_s: float) -> None:
        self._tell(("begin", 0, at_s))

    def _tell(self, command: WorkerCommand) -> None:
        self._commands.append(command)
        self._next_s = 0.0

    def poll(self, take: Callable[[HostEvent], None]) -> None:
        self._exchange()
        box, self._box = self._box, []
        for news in box:
            take(news)

    def _exchange(self) -> None:
        """Take an answer that has come; ask anew when it is time."""
        if self.lost is not None or self._ended:
            return
        now = time.perf_counter()
        try:
            if self._asked_s is not None:
                answer = self.post.answer()
                if answer is not None:
                    self._note(answer)
                elif now - self._asked_s > (PATIENCE_S if self._heard else START_S):
                    raise WorkerLostError(f"gave no answer in {now - self._asked_s:.0f} s")
            if self._asked_s is None and not self._ended and now >= self._next_s:
                commands, self._commands = self._commands, []
                self._last = CLOSE in commands
                self._asked_s, self._next_s = now, now + EVERY_S
                self.post.ask(commands)
        except WorkerLostError as error:
            self._lose(str(error))

    def _note(self, answer: WorkerReply) -> None:
        self._asked_s, self._heard, self._ended = None, True, self._last
        self._horizon_s = answer.horizon_s
        self.cpu_share = answer.cpu_share
        if answer.more:
            self._next_s = 0.0
        for news in answer.news():
            if isinstance(news, SessionEnded):
                self._open.discard(news.session)
            self._box.append(news)

    def _lose(self, why: str) -> None:
        self.lost = f"{self.post.name} {why}"
        for index in sorted(self._open):
            self._box.append(SessionEnded(index, "shed", self.lost))
        self._open.clear()

    def drop(self, index: int) -> None:
        """Its end is known."""
        self._open.discard(index)

    def horizon_s(self) -> float:
        return math.inf if self.lost is not None else self._horizon_s

    def start_closing(self) -> None:
        self._tell(CLOSE)
        self._exchange()

    def close(self) -> None:
        until = time.perf_counter() + PATIENCE_S
        while self.lost is None and not self._ended:
            if time.perf_counter() > until:
                self._lose(f"did not end in {PATIENCE_S:g} s")
                break
            self._exchange()
            time.sleep(_NAP_S)
        if not self._let_go:
            self._let_go = True
            self.post.end(0.0 if self.lost else PATIENCE_S)
