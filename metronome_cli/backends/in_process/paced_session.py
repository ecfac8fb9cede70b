"""One simulated caller: when its frames are due, what audio they bring, and how far behind its answers are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from metronome_cli.core.types import Audio, FrameOutput
from metronome_cli.measure.silence import silence_timeout_s


class Stream(Protocol):
    """A session's own audio."""

    def frame(self, k: int) -> Audio:
        """Samples of frame k: [samples] float32."""


class Turns(Protocol):
    """Who speaks when."""

    def speaking(self, t_s: float) -> bool:
        """Whether the model speaks at that age of the session."""

    def runs(self, age_s: float, period_s: float, frames: int) -> list[int]:
        """For `frames` frames from that age on: how many it listens, then how many it speaks, and so on in turn."""


@dataclass(slots=True)
class PacedSession:
    """A caller in a seat. `start_s` is planned: frame k is due at start + (k + 1) period, whatever happened."""

    index: int
    slot: int
    start_s: float
    period_s: float
    age_s: float  # lived before the start
    end_s: float
    stream: Stream
    turns: Turns
    next_frame: int = 0
    empty_since_s: float | None = None  # the first of the empty frames since its last output
    fell_silent: bool = False  # whether it ever was without output for longer than a silence takes

    def hear(self, outcome: FrameOutput, now_s: float) -> None:
        """Take note of whether a frame that owed an answer brought one."""
        if outcome.delivered:
            self.empty_since_s = None
        elif outcome.expected:
            self.empty_since_s = now_s if self.empty_since_s is None else self.empty_since_s
            self.fell_silent |= now_s - self.empty_since_s >= silence_timeout_s(self.period_s)

    @property
    def due_s(self) -> float:
        """When the next unanswered frame's last sample has arrived."""
        return self.start_s + (self.next_frame + 1) * self.period_s

    def backlog(self, now_s: float) -> int:
        """Frames that are due and unanswered."""
        return max(0, math.floor((now_s - self.due_s) / self.period_s + 1e-9) + 1)

    def speaks(self) -> bool:
        """Whether the model speaks in the next frame."""
        return self.turns.speaking(self.age_s + self.next_frame * self.period_s)
