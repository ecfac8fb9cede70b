"""Output frames of a model that answers in turns: each period of its sound, due when a listener's player needs it.

From which instant: the first chunk of an answer starts the player, which then needs sound without a break. The latency
of a frame is the time that the player had nothing to play within it, so sound that arrives ahead is on time, and after
a gap the player resumes where it stopped. Left out: the time until the first chunk (the reply time), all time without
an open answer, and what a cancelled answer had not played. Known error: the lateness of the event loop that stamps
messages.
"""

from __future__ import annotations

import math
from collections import deque

from metronome_cli.core.session import FrameResult

EPSILON_S = 1e-6


class PlaybackMatcher:
    """Frames of sound of one session, with the interface of AnswerMatcher. Times in seconds on the trial clock."""

    def __init__(self, session: int, period_s: float, give_up_s: float) -> None:
        self.sent_frames = 0
        self.heard_s = 0.0
        self.last_output_s: float | None = None
        self.behind_frames = 0  # sound is not counted against input
        self._session = session
        self._period_s = period_s
        self._give_up_s = give_up_s
        self._speaking = False
        self._sounds = False  # the open answer has brought sound
        self._due_s = math.inf  # when the player starts the next frame; infinity without a begun answer
        self._media_s = 0.0  # sound of that frame that has come
        self._late_s = 0.0  # time without sound within that frame
        self._ready: deque[FrameResult] = deque()  # came whole; may be due in the future

    @property
    def owes(self) -> bool:
        """True if an open answer has delivered sound."""
        return self._speaking and self._sounds

    @property
    def oldest_due_s(self) -> float:
        """When the oldest frame without a result is due; infinity between answers."""
        return self._ready[0].due_s if self._ready else self._due_s

    @property
    def _runs_out_s(self) -> float:
        """When the player has played all that came."""
        return self._due_s + self._late_s + self._media_s

    def sent_audio(self, seconds: float) -> None:
        """Do nothing: input is not counted."""

    def sent(self, due_s: float) -> None:
        """Record that a frame of input was sent."""
        self.sent_frames += 1

    def unit(self, now_s: float, unit: int | str | None = None) -> list[FrameResult]:
        """Record a sign of life of the server."""
        self.last_output_s = now_s
        return self._released(now_s)

    def output(self, now_s: float, seconds: float) -> list[FrameResult]:
        """Take a chunk of sound; return the frames that were due until now. Text has no sound."""
        if seconds <= 0.0:
            return self._released(now_s)
        self.heard_s += seconds
        self.last_output_s = now_s
        self._speaking = True
        if not self._sounds:
            self._sounds = True
            self._due_s = now_s if math.isinf(self._due_s) else max(now_s, self._due_s)
        self._late_s += max(0.0, now_s - self._runs_out_s)
        self._media_s += seconds
        while self._media_s >= self._period_s - EPSILON_S:
            done_s = self._due_s + self._late_s
            self._ready.append(FrameResult(self._session, self._due_s, done_s, 1, 1))
            self._due_s, self._late_s = done_s + self._period_s, 0.0
            self._media_s = max(0.0, self._media_s - self._period_s)
        return self._released(now_s)

    def _released(self, now_s: float) -> list[FrameResult]:
        records = []
        while self._ready and self._ready[0].done_s <= now_s:
            records.append(self._ready.popleft())
        if not self._ready and not self._speaking:
            self._due_s = math.inf
        return records

    def turn(self, speaking: bool, now_s: float, *, cut_off: bool = False) -> list[FrameResult]:
        """Record that an answer began or ended. `cut_off`: the server aborted it; missing sound is then empty."""
        records = self._released(now_s)
        if not speaking and cut_off and self.owes and self._runs_out_s <= now_s:
            records.append(self._empty())
        if speaking != self._speaking:
            self._sounds, self._media_s, self._late_s = False, 0.0, 0.0
        self._speaking = speaking
        if not self._ready:
            self._due_s = math.inf
        return records

    def interrupt(self) -> None:
        """Record that the user's speech cancelled the answer. Sound not yet played is no longer owed."""
        self._ready.clear()
        self._speaking = self._sounds = False
        self._due_s, self._media_s, self._late_s = math.inf, 0.0, 0.0

    def give_up(self) -> list[FrameResult]:
        """After the connection was lost, return what was due, and the frame that an open answer still owes, as
        empty."""
        records = [*self._ready, *([self._empty()] if self.owes else ())]
        self.interrupt()
        return records

    def missed(self, due_s: float) -> list[FrameResult]:
        """Return nothing: no frame of sound is owed without a connection."""
        return []

    def expire(self, now_s: float) -> list[FrameResult]:
        """Return the frames that were due; those that an open answer did not deliver in time are empty."""
        records = self._released(now_s)
        while self.owes and not self._ready and self._runs_out_s + self._give_up_s <= now_s:
            records.append(self._empty())
            self._due_s += self._period_s
        return records

    def _empty(self) -> FrameResult:
        return FrameResult(self._session, self._due_s, self._due_s + self._give_up_s, 1, 0)
