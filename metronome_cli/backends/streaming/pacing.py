"""Pacing of streaming sessions: messages per frame, and when a frame without an answer is given up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metronome_cli.config.profile import Profile

PIECE_S = 0.080  # longest piece of audio in one message
GIVE_UP_PERIODS = 10
GIVE_UP_LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Pacing:
    """Pacing limits. A frame without an answer for `give_up_s` is empty; a session more than `backlog_limit` frames
    behind is closed.
    """

    period_s: float
    give_up_s: float
    backlog_limit: int

    @property
    def pieces(self) -> int:
        """Messages per frame."""
        return max(1, math.ceil(self.period_s / PIECE_S - 1e-9))


def pacing_of(profile: Profile) -> Pacing:
    """Return the pacing of a profile. A frame is given up after 10 periods, but not before 1 s."""
    frame = profile.frame
    give_up_s = max(GIVE_UP_LEAST_S, GIVE_UP_PERIODS * frame.period_s)
    return Pacing(frame.period_s, give_up_s, frame.max_backlog)
