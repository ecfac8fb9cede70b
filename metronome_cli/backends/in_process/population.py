"""All callers of a run: opening, closing, and whose frame is due next."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Protocol

from metronome_cli.backends.in_process.paced_session import PacedSession, Stream, Turns
from metronome_cli.backends.step_engine import Target
from metronome_cli.config.profile import Profile
from metronome_cli.core.types import EndReason, FrameInput
from metronome_cli.load.arrivals import Arrival
from metronome_cli.load.door import Door, Note


class AudioSource(Protocol):
    """Distinct audio and a distinct phase for each session."""

    def stream(self, index: int) -> Stream: ...

    def phase_s(self, index: int) -> float:
        """Where in the period this session's frames fall, seconds."""


class Population(Door):
    """Open sessions, ordered by the due time of their next frame (earliest deadline first).

    Their frames are staggered over the period, or, `aligned`, all due at its multiples.
    """

    def __init__(
        self,
        target: Target,
        profile: Profile,
        streams: AudioSource,
        turns: Callable[[int], Turns],
        *,
        aligned: bool = False,
        note: Note | None = None,
    ) -> None:
        super().__init__(note)
        self.target = target
        self.profile = profile
        self._streams = streams
        self._turns = turns
        self._aligned = aligned
        self._sessions: dict[int, PacedSession] = {}  # by index, in order of opening
        self._queue: list[tuple[float, int]] = []  # (due, index)

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, now_s: float, age_s: float = 0.0, lifetime_s: float = math.inf, index: int | None = None
    ) -> PacedSession:
        """Seat one more session from `now_s` on; he knocks now unless he has. Raises SlotRefused; the caller counts
        that one as refused.
        """
        if index is None:
            index = self.knock(Arrival(now_s, age_s, lifetime_s))
        slot = self.target.open(age_s)
        session = PacedSession(
            index=index,
            slot=slot,
            start_s=self._start_s(now_s, index),
            period_s=self.profile.frame.period_s,
            age_s=age_s,
            end_s=now_s + lifetime_s,
            stream=self._streams.stream(index),
            turns=self._turns(index),
        )
        self._sessions[index] = session
        heapq.heappush(self._queue, (session.due_s, index))
        return session

    def _start_s(self, now_s: float, index: int) -> float:
        """Staggered: at the session's own phase. Aligned: at the next multiple of the period."""
        if self._aligned:
            period_s = self.profile.frame.period_s
            return math.ceil(now_s / period_s - 1e-9) * period_s
        return now_s + self._streams.phase_s(index)

    def close(self, session: PacedSession, reason: EndReason) -> None:
        """End one session and give its seat back."""
        self.target.close(session.slot)
        self.forget(session, reason)

    def forget(self, session: PacedSession, reason: EndReason) -> None:
        """The engine ended this session by itself."""
        del self._sessions[session.index]
        self.ended[reason] += 1

    def close_newest(self, count: int, reason: EndReason = "shed") -> None:
        """End the sessions opened last."""
        for session in list(self._sessions.values())[::-1][:count]:
            self.close(session, reason)

    def next_due_s(self) -> float:
        """When the next frame is due; infinity without sessions."""
        while self._queue and self._queue[0][1] not in self._sessions:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else math.inf

    def take_due(self, now_s: float, limit: int) -> list[PacedSession]:
        """Up to `limit` sessions with a due frame, earliest first, one frame each. Put back with `answered`."""
        due: list[PacedSession] = []
        while len(due) < limit and self.next_due_s() <= now_s:
            due.append(self._sessions[heapq.heappop(self._queue)[1]])
        return due

    def frame_of(self, session: PacedSession) -> FrameInput:
        """The next frame of that session, audio and all."""
        out = self.profile.tokens.decode
        tokens = out.speaking if session.speaks() else out.listening
        return FrameInput(session.slot, session.stream.frame(session.next_frame), tokens)

    def answered(self, session: PacedSession) -> None:
        """Its frame was answered; the next one queues up."""
        session.next_frame += 1
        heapq.heappush(self._queue, (session.due_s, session.index))

    def sessions(self) -> list[PacedSession]:
        """The open ones, oldest first."""
        return list(self._sessions.values())
