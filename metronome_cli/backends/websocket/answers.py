"""Matches output to the frames that it answers, for one session over the network.

A frame's latency runs from the planned send time of its last sample to the message that answers it. How answers are
matched is fixed before the first frame (`AnswerRule`):

    counted   output is counted in seconds against input, in order: frame k is answered when all output up to its end
              has come, except the hold-back: input that the server does not answer until more input follows
    units     one message answers one unit of input, by the server's number of the unit, else in order
    bursts    from the first output of an answer to its end, the next output answers every frame that waits
    playback  frames of the model's own sound: backends/websocket/playback_answers.py

The hold-back is measured in an idle call (backends/websocket/idle_call.py) and never grows in a session, so later
lateness is measured in full. It shrinks if output arrives that only a smaller hold-back explains. Output
that comes before any input that it could answer is not counted. A frame without an answer after `give_up_s` is empty.
Known error: output that does not depend on the input, and that came while frames waited, answers them too early.
"""

from __future__ import annotations

import math
from collections import deque

from metronome_cli.core.session import FrameResult
from metronome_cli.protocols.interface import AnswerRule

EPSILON_S = 1e-6


class AnswerMatcher:
    """Frames of one session that wait for an answer. Times in seconds on the trial clock."""

    def __init__(self, session: int, rule: AnswerRule, period_s: float, give_up_s: float) -> None:
        self.sent_frames = 0
        self.heard_s = 0.0  # of output
        self.last_output_s: float | None = None
        self.owes = rule.kind != "bursts"
        self._session = session
        self._counted = rule.kind == "counted"
        self._units = rule.kind == "units"
        self._pauses = self._units and rule.owed == "learned"  # within an answer, a unit may have no output
        self._hold_back_s = rule.hold_back_s or 0.0
        self._period_s = period_s
        self._give_up_s = give_up_s
        self._sent_s = 0.0
        self._answered_s = 0.0  # of input, by counted output
        self._last_unit: int | str | None = None
        self._waiting: deque[tuple[int, float]] = deque()  # frame, planned send time; oldest first

    @property
    def oldest_due_s(self) -> float:
        """Planned send time of the frame that waits longest; infinity if none waits."""
        return self._waiting[0][1] if self._waiting else math.inf

    @property
    def behind_frames(self) -> int:
        """Frames of output that are missing against the input, without the hold-back; 0 if output is not counted."""
        if not self._counted:
            return 0
        missing_s = self.sent_frames * self._period_s - self._hold_back_s - self._answered_s
        return max(0, math.ceil(missing_s / self._period_s - EPSILON_S))

    def sent_audio(self, seconds: float) -> None:
        """Record that audio was sent."""
        self._sent_s += seconds

    def sent(self, due_s: float) -> None:
        """Record that the last sample of a frame was sent."""
        frame = self.sent_frames
        self.sent_frames += 1
        held_back = self.owes and (frame + 1) * self._period_s <= self._hold_back_s + EPSILON_S
        if self.owes and not held_back:
            self._waiting.append((frame, due_s))

    def output(self, now_s: float, seconds: float) -> list[FrameResult]:
        """Return the frames that output of that length answers; 0: text."""
        self.heard_s += seconds
        if self._units or (self._counted and seconds == 0.0):
            return []
        self.last_output_s = now_s
        self.owes = True
        if self._counted:
            self._count(seconds)
        records = []
        while self._waiting and self._waiting[0][1] <= now_s and self._is_answered(self._waiting[0][0]):
            records.append(self._answer(now_s))
        return records

    def _count(self, seconds: float) -> None:
        self._answered_s = min(self._answered_s + seconds, self._sent_s)
        self._hold_back_s = min(self._hold_back_s, self._sent_s - self._answered_s)

    def _is_answered(self, frame: int) -> bool:
        if not self._counted:
            return True
        return (frame + 1) * self._period_s <= self._answered_s + self._hold_back_s + EPSILON_S

    def _answer(self, now_s: float) -> FrameResult:
        return FrameResult(self._session, self._waiting.popleft()[1], now_s, 1, 1)

    def unit(self, now_s: float, unit: int | str | None = None) -> list[FrameResult]:
        """Return the frame that an answer to one unit answers; further answers to the same unit answer none."""
        self.last_output_s = now_s
        if not self._units or (unit is not None and unit == self._last_unit):
            return []
        self._last_unit = unit
        return [self._answer(now_s)] if self._waiting and self._waiting[0][1] <= now_s else []

    def turn(self, speaking: bool, now_s: float, *, cut_off: bool = False) -> list[FrameResult]:
        """Record that an answer of the model began or ended. In bursts, nothing is owed after its end."""
        if self._counted or (self._units and not self._pauses):
            return []
        self.owes = speaking != self._pauses
        left = self.expire(math.inf) if cut_off else []
        self._waiting.clear()
        return left

    def interrupt(self) -> None:
        """Record that the user's speech cancelled the answer."""

    def give_up(self) -> list[FrameResult]:
        """After the connection was lost, return the waiting frames, as empty."""
        return self.expire(math.inf)

    def missed(self, due_s: float) -> list[FrameResult]:
        """Return a frame that was due without a connection, as empty, if it is owed an answer."""
        return [FrameResult(self._session, due_s, due_s + self._give_up_s, 1, 0)] if self.owes else []

    def expire(self, now_s: float) -> list[FrameResult]:
        """Return the frames that were not answered in time."""
        records = []
        while self._waiting and self._waiting[0][1] + self._give_up_s <= now_s:
            _, due_s = self._waiting.popleft()
            records.append(FrameResult(self._session, due_s, due_s + self._give_up_s, 1, 0))
        return records
