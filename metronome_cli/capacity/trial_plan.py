"""What one trial runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from metronome_cli.load.trace import Ages, TraceTrial


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """A number of sessions, their ages, and when the trial ends.

    `ages`: sessions spread over the session length, all new, or all in the last `length_s` of their lifetime.
    `max_batches` bounds the measured batches (None: no bound), `length_s` the trial clock (None: until settled).
    `until`: "settled" ends as soon as the verdict is known. `memory_only`: asks whether every session's cache fits, not
    for the batches that latency would need. `screening`: a full pool ends it at once, since it only says where to look.
    """

    sessions: int
    purpose: str
    ages: Ages = "spread"
    max_batches: int | None = None
    length_s: float | None = None
    until: Literal["settled", "end"] = "settled"
    memory_only: bool = False
    screening: bool = False

    @property
    def head(self) -> TraceTrial:
        """The trial as a load trace names it."""
        return TraceTrial(
            purpose=self.purpose, sessions=self.sessions, ages=self.ages, memory_only=self.memory_only
        )


def memory_plan(sessions: int, session_length_s: float, period_s: float) -> TrialPlan:
    """All sessions in the last 24 periods of their lifetime, when every window is full."""
    length_s = min(session_length_s, 24 * period_s)
    return TrialPlan(sessions, "memory", ages="end", length_s=length_s, memory_only=True)
