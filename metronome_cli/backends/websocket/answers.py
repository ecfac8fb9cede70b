"""Which output answers which frame, for one session over the network.

A frame's latency runs from the planned send time of its last sample to the first output that follows it. Where a
protocol gives every frame output of its own (`steady`), that output must also bring the count of answered frames
up to it, but for the `lag_frames` that such a server may hold back at the start: a server that emits steadily and
is two seconds behind is late by two seconds, not by none. Where it does not, a frame is owed an answer only while
the model speaks.

A frame without an answer after `give_up_s` counts as empty. Known error: output that was under way when a frame
was sent answers it too early, by less than the network's travel time.
"""

from __future__ import annotations

import math
from collections import deque

from metronome_cli.measure.ledger import FrameRecord
from metronome_cli.protocols.interface import ProtocolTraits


class AnswerMatcher:
    """One session's frames that wait for an answer. Times in seconds of the run's clock."""

    def __init__(self, session: int, traits: ProtocolTraits, period_s: float, give_up_s: float) -> None:
        self.sent_frames = 0
        self.heard_s = 0.0  # of output
        self.last_output_s: float | None = None
        self.speaking = traits.steady
        self._session = session
        self._steady = traits.steady
        self._lag = traits.lag_frames
        self._period_s = period_s
        self._give_up_s = give_up_s
        self._answered = 0
        self._waiting: deque[float] = deque()  # planned send times, oldest first

    @property
    def oldest_due_s(self) -> float:
        """The longest-waiting frame's planned send time; infinity when none waits."""
        return self._waiting[0] if self._waiting else math.inf

    @property
    def behind_frames(self) -> int:
        """How many frames of output are missing against the input, beyond the lag; 0 where it is not counted."""
        if not self._steady:
            return 0
        return max(0, self.sent_frames - self._lag - math.floor(self.heard_s / self._period_s + 1e-6))

    def sent(self, due_s: float) -> None:
        """A frame's last sample was due, and has been sent."""
        self.sent_frames += 1
        if self.speaking:
            self._waiting.append(due_s)

    def output(self, now_s: float, seconds: float) -> list[FrameRecord]:
        """Output came: the frames that it answers."""
        self.heard_s += seconds
        if self._steady and seconds == 0.0:
            return []
        self.last_output_s = now_s
        records = []
        while self._waiting and self._waiting[0] <= now_s and self._may_answer():
            records.append(FrameRecord(self._session, self._waiting.popleft(), now_s, 1, 1))
            self._answered += 1
        return records

    def _may_answer(self) -> bool:
        return not self._steady or self._answered < self.heard_s / self._period_s + self._lag - 1e-6

    def turn(self, speaking: bool) -> None:
        """The model began or ended to speak; with its end nothing is owed any more."""
        if self._steady:
            return
        self.speaking = speaking
        if not speaking:
            self._waiting.clear()

    def give_up(self) -> list[FrameRecord]:
        """The connection is gone: nothing will answer what waits."""
        return self.expire(math.inf)

    def missed(self, due_s: float) -> list[FrameRecord]:
        """A frame was due while there was no connection: as good as unanswered, where it is owed an answer."""
        return [FrameRecord(self._session, due_s, due_s + self._give_up_s, 1, 0)] if self.speaking else []

    def expire(self, now_s: float) -> list[FrameRecord]:
        """Frames that nothing answered in time."""
        records = []
        while self._waiting and self._waiting[0] + self._give_up_s <= now_s:
            due_s = self._waiting.popleft()
            records.append(FrameRecord(self._session, due_s, due_s + self._give_up_s, 1, 0))
        return records
