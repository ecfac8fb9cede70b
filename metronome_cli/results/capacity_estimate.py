"""The estimate of N* in a report, and the evidence that it rests on."""

from __future__ import annotations

from pydantic import Field

from metronome_cli.results.part import Natural, ReportPart


class SessionInterval(ReportPart):
    """A number of sessions with its 90 % interval; 0: not even one session."""

    sessions: Natural
    """The estimate."""
    low: Natural
    """Lower end of the interval."""
    high: Natural
    """Upper end of the interval."""


class LateShare(ReportPart):
    """Share of late frames that is expected at one number of sessions, 0 to 1."""

    sessions: Natural
    """How many sessions."""
    expected: float
    """Mean."""
    low: float
    """Lower end of the 90 % interval."""
    high: float
    """Upper end of the 90 % interval."""


class CapacityEstimate(SessionInterval):
    """Largest number of sessions whose share of late frames is within the objective, from all trials."""

    method: str
    """How it was estimated."""
    objective: str
    """The latency objective that it is about."""
    late_share_limit: float
    """Share of frames that this objective lets be late."""
    undisturbed: SessionInterval | None = None
    """The same without disturbances by other work; null: none were seen."""
    interference_share: float | None = None
    """Share of frames that are late at any number of sessions; null: too small to break the objective."""
    disturbed_s: float = 0.0
    """Measured seconds in which the machine was slower for another reason than the sessions."""
    measured_s: float = 0.0
    """Measured seconds in all."""
    late_shares: list[LateShare] = Field(default_factory=list)
    """Expected share of late frames against the number of sessions."""
