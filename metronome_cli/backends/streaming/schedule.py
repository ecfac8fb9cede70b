"""Planned send times of a session's audio. They do not depend on earlier delays."""

from __future__ import annotations

import math

from metronome_cli.backends.streaming.pacing import Pacing


class SendSchedule:
    """Send times of one session, in seconds of the trial clock. A frame is due with its last piece."""

    def __init__(self, beat: Pacing, lifetime_s: float) -> None:
        self.started_s: float | None = None  # time of the first sample
        self.next_due_s = math.inf  # due time of the next frame
        self.piece = 0  # index of the next piece
        self._pieces = beat.pieces
        self._period_s = beat.period_s
        self._piece_s = beat.period_s / beat.pieces
        self.lifetime_s = lifetime_s
        self._frames = lifetime_s / beat.period_s - 1e-9

    def due_s(self, pieces: int) -> float:
        """Return the time at which that many pieces are due."""
        assert self.started_s is not None
        return self.started_s + pieces * self._piece_s

    def within(self, now_s: float) -> bool:
        """True if the session's audio has started and its lifetime is not over."""
        return self.started_s is not None and (now_s - self.started_s) / self._period_s < self._frames

    def next_piece(self) -> tuple[int, int] | None:
        """Return the next frame and the piece within it; None if all were sent."""
        frame, piece = divmod(self.piece, self._pieces)
        if piece == 0 and frame >= self._frames:
            self.next_due_s = math.inf
            return None
        self.next_due_s = self.due_s((frame + 1) * self._pieces)
        return frame, piece

    def sent(self) -> bool:
        """Advance to the next piece. Return True if the sent one was the last of its frame."""
        self.piece += 1
        return self.piece % self._pieces == 0

    def pass_over(self, now_s: float) -> list[float]:
        """Skip the frames that are due by now and return their due times."""
        missed: list[float] = []
        self.piece -= self.piece % self._pieces
        while self.next_piece() is not None and self.next_due_s <= now_s:
            missed.append(self.next_due_s)
            self.piece += self._pieces
        return missed
