"""The report of every kind of `predict`: conditions, verdict, exit code."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from metronome_cli import __version__
from metronome_cli.config.profile import Profile
from metronome_cli.errors import Status, Verdict, exit_code_for
from metronome_cli.forecast.outlook import Span
from metronome_cli.report.environment import environment
from metronome_cli.report.forecast import FleetPlan, Forecast, GpuEstimate, Interval
from metronome_cli.report.model import Report


@dataclass(slots=True)
class Draft:
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
            answer=answer,
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


def interval(span: Span) -> Interval:
    """For the report."""
    return Interval(estimate=span.estimate, low=span.low, high=span.high)
