"""Sessions in one event loop of this process. Their events are queued for the thread that polls."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.core.session import HostEvent


class StreamingSession(Protocol):
    """A session that runs as a task of the event loop."""

    @property
    def horizon_s(self) -> float:
        """All results of frames due before this instant have been reported."""


S = TypeVar("S", bound=StreamingSession)


class LocalHost(Generic[S]):
    """Base of a `SessionHost` in this process. Sessions append their events to `inbox`."""

    lost: str | None = None  # a host in this process cannot be lost

    def __init__(self, loop: EventLoopThread) -> None:
        self.inbox: deque[HostEvent] = deque()
        self.loop = loop
        self._sessions: dict[int, S] = {}
        self._cancel: dict[int, Callable[[], None]] = {}

    def add(self, index: int, session: S, life: Coroutine[Any, Any, None]) -> None:
        """Start a session."""
        self._sessions[index] = session
        self._cancel[index] = self.loop.spawn(life)

    def sessions(self) -> list[S]:
        """Return the open sessions, oldest first."""
        return list(self._sessions.values())

    def close_session(self, index: int) -> None:
        if index in self._cancel:
            self._cancel[index]()

    def start_closing(self) -> None:
        """End every session; returns at once."""
        for index in list(self._cancel):
            self.close_session(index)

    def drop(self, index: int) -> None:
        self._sessions.pop(index, None)
        self._cancel.pop(index, None)

    def poll(self, take: Callable[[HostEvent], None], most: int | None = None) -> None:
        """Pass queued events to `take`, at most `most` of them."""
        there = len(self.inbox)
        for _ in range(there if most is None else min(there, most)):
            take(self.inbox.popleft())

    def horizon_s(self) -> float:
        return min((session.horizon_s for session in self.sessions()), default=math.inf)
