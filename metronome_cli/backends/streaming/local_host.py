"""Sessions that live in one event loop of this process: their news in a box, taken in the caller's thread."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.core.session_events import SessionEvent


class StreamingSession(Protocol):
    """A session."""

    @property
    def horizon_s(self) -> float:
        """No record of a frame due before this instant is still to come."""


S = TypeVar("S", bound=StreamingSession)


class LocalHost(Generic[S]):
    """A `load.live.Host`. Sessions put their news into `inbox`."""

    def __init__(self, loop: EventLoopThread) -> None:
        self.inbox: deque[SessionEvent] = deque()
        self.loop = loop
        self._sessions: dict[int, S] = {}
        self._cancel: dict[int, Callable[[], None]] = {}

    def add(self, index: int, session: S, life: Coroutine[Any, Any, None]) -> None:
        """Start that session's life."""
        self._sessions[index] = session
        self._cancel[index] = self.loop.spawn(life)

    def sessions(self) -> list[S]:
        """The open ones, oldest first."""
        return list(self._sessions.values())

    def hang_up(self, index: int) -> None:
        if index in self._cancel:
            self._cancel[index]()

    def start_closing(self) -> None:
        """End every session; returns at once."""
        for index in list(self._cancel):
            self.hang_up(index)

    def forget(self, index: int) -> None:
        self._sessions.pop(index, None)
        self._cancel.pop(index, None)

    def poll(self, take: Callable[[SessionEvent], None], most: int | None = None) -> None:
        """Whatever has come is taken, `most` at a time."""
        there = len(self.inbox)
        for _ in range(there if most is None else min(there, most)):
            take(self.inbox.popleft())

    def horizon_s(self) -> float:
        return min((session.horizon_s for session in self.sessions()), default=math.inf)
