"""When the pieces of a session's audio are due: by the plan, whatever happened meanwhile."""

from __future__ import annotations

import math

from metronome_cli.backends.streaming.pacing import Pacing


class SendSchedule:
    """Of one session. Times in seconds of the run's clock; a frame is due with its last piece."""

    def __init__(self, beat: Pacing, lifetime_s: float) -> None:
        self.started_s: float | None = None  # of the first sample's second
        self.next_due_s = math.inf  # of the frame that is sent next
        self.piece = 0  # sent next
        self._pieces = beat.pieces
        self._period_s = beat.period_s
        self._piece_s = beat.period_s / beat.pieces
        self.lifetime_s = lifetime_s
        self._frames = lifetime_s / beat.period_s - 1e-9

    def due_s(self, pieces: int) -> float:
        """When that many pieces are to have been sent."""
        assert self.started_s is not None
        return self.started_s + pieces * self._piece_s

    def within(self, now_s: float) -> bool:
        """Whether the session has begun to speak, and its time is not over."""
        return self.started_s is not None and (now_s - self.started_s) / self._period_s < self._frames

    def next_piece(self) -> tuple[int, int] | None:
        """The frame, and which piece of it, that is sent next; None when all were."""
        frame, piece = divmod(self.piece, self._pieces)
        if piece == 0 and frame >= self._frames:
            self.next_due_s = math.inf
            return None
        self.next_due_s = self.due_s((frame + 1) * self._pieces)
        return frame, piece

    def sent(self) -> bool:
        """The next piece went out; whether it was the last one of its frame."""
        self.piece += 1
        return self.piece % self._pieces == 0

    def pass_over(self, now_s: float) -> list[float]:
        """Frames due by now are not sent any more: when each was due."""
        missed: list[float] = []
        self.piece -= self.piece % self._pieces
        while self.next_piece() is not None and self.next_due_s <= now_s:
            missed.append(self.next_due_s)
            self.piece += self._pieces
        return missed
