"""What one trial runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from metronome_cli.load.trace import Ages, TraceTrial

LEAST_CONFIRM_S = 10.0  # what changes within seconds is seen


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """A number of sessions, their ages, and when the trial ends.

    `ages`: sessions spread over the session length, all new, or all in the last `length_s` of their lifetime.
    `max_batches` bounds the measured batches (None: no bound), `length_s` the trial clock (None: until settled).
    `until`: "settled" ends as soon as the verdict is known, with a pass at `least_s` or later. `memory_only`: asks
    whether every session's cache fits, not for the batches that latency would need. `screening`: a full pool ends it
    at once, since it only says where to look.
    """

    sessions: int
    purpose: str
    ages: Ages = "spread"
    max_batches: int | None = None
    length_s: float | None = None
    until: Literal["settled", "end"] = "settled"
    memory_only: bool = False
    screening: bool = False
    least_s: float = 0.0

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


@dataclass(frozen=True, slots=True)
class TrialPlans:
    """Trials of one search. `grows`: the cache grows with age. `lives`: a confirmation lasts the whole session length.

    `soak`: so it does by request, and to its end.
    """

    session_length_s: float
    period_s: float
    grows: bool
    lives: bool
    soak: bool = False

    def look(self, sessions: int, length_s: float) -> TrialPlan:
        """A short trial of fixed length."""
        ages: Ages = "start" if self.lives else "end" if self.grows else "spread"
        length_s = min(self.session_length_s, length_s)
        return TrialPlan(sessions, "screen", ages=ages, length_s=length_s, until="end", screening=True)

    def confirm(self, sessions: int, length_s: float, batches: int) -> TrialPlan:
        """A trial that can prove the objectives, in at most so many batches or, if the cache grows, in `length_s`."""
        if self.soak or self.lives:
            until: Literal["settled", "end"] = "end" if self.soak else "settled"
            return TrialPlan(sessions, "soak", ages="start", length_s=self.session_length_s, until=until)
        if self.grows:
            return TrialPlan(sessions, "confirm", ages="end", length_s=min(self.session_length_s, length_s))
        return TrialPlan(sessions, "confirm", max_batches=batches, least_s=LEAST_CONFIRM_S)

    def memory(self, sessions: int) -> TrialPlan | None:
        """A trial in which every window is full; None if a confirmation shows the same."""
        if self.grows or self.lives or self.soak:
            return None
        return memory_plan(sessions, self.session_length_s, self.period_s)
