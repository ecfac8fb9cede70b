"""The report of every kind of `predict`: conditions, verdict, exit code."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from metronome_cli import __version__
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import Status, Verdict, exit_code_for
from metronome_cli.core.quantities import format_duration
from metronome_cli.measure.environment import environment
from metronome_cli.results.forecast_result import FleetPlan, Forecast, GpuEstimate, Interval
from metronome_cli.results.run_report import Report

READ_IN_SECONDS = 9999.5


@dataclass(slots=True)
class ReportDraft:
    """A report in the making: begun now, finished by `report`."""

    argv: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    profile: Profile | None = None
    began_s: float = field(default_factory=time.perf_counter)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def report(
        self,
        answer: str,
        *,
        verdict: Verdict | None = None,
        forecast: Forecast | None = None,
        fleet: FleetPlan | None = None,
        gpus: list[GpuEstimate] | None = None,
        signum: int | None = None,
    ) -> Report:
        """The report as of now. `signum`: it was stopped by that signal."""
        status: Status = "complete" if signum is None else "interrupted"
        return Report(
            command="predict",
            status=status,
            verdict=verdict,
            exit_code=exit_code_for(status, verdict, signum=signum),
            summary=answer,
            started_at=self.started_at,
            duration_s=time.perf_counter() - self.began_s,
            argv=list(self.argv),
            version=__version__,
            profile=None if self.profile is None else self.profile.model_dump(mode="json"),
            environment=environment(devices=False),
            settings=self.settings,
            forecast=forecast,
            fleet=fleet,
            gpus=gpus or [],
        )


def format_interval(t: Interval) -> str:
    """ "4.32 s (90 % interval 4.026 to 4.609 s)", or in hours and minutes from 9,999.5 s on.

    For a span that has an estimate, and then a lower end; it may have no upper one.
    """
    assert t.estimate is not None
    assert t.low is not None
    in_seconds = max(t.estimate, t.high or 0.0) < READ_IN_SECONDS
    estimate, low, high = (
        "" if end is None else f"{end:.4g} s" if in_seconds else format_duration(end)
        for end in (t.estimate, t.low, t.high)
    )
    if low == high:
        return estimate
    to = f"{low.removesuffix(' s') if in_seconds else low} to {high}" if high else f"{low} to no upper bound"
    return f"{estimate} (90 % interval {to})"
