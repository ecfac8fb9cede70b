"""The report of every kind of `probe`: conditions, status, exit code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from metronome_cli import __version__
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import Status, Verdict, exit_code_for
from metronome_cli.core.stop import StopRequest
from metronome_cli.measure.environment import environment
from metronome_cli.results.audio_files import AudioFiles
from metronome_cli.results.latency_result import ProbeResult
from metronome_cli.results.run_report import Report

NOT_LOADED = "Interrupted before anything was measured: the model was not loaded."


@dataclass(slots=True)
class ProbeDraft:
    """A report in the making: begun now, finished by `report`."""

    profile: Profile
    seed: int
    argv: tuple[str, ...]
    settings: Mapping[str, object] | None
    began_s: float = field(default_factory=time.perf_counter)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def report(
        self,
        answer: str,
        probe: ProbeResult,
        *,
        weights: str | None = None,
        audio: AudioFiles | None = None,
        stop: StopRequest,
        error: str | None = None,
    ) -> Report:
        """The report as of now. A probe judges nothing: it is whole, or inconclusive."""
        status: Status = "failed" if error is not None else "interrupted" if stop() else "complete"
        verdict: Verdict | None = None if status == "complete" else "inconclusive"
        return Report(
            command="probe",
            status=status,
            verdict=verdict,
            exit_code=exit_code_for(status, verdict, signum=stop.signum),
            summary=answer,
            clock="real",
            started_at=self.started_at,
            duration_s=time.perf_counter() - self.began_s,
            argv=list(self.argv),
            version=__version__,
            seed=self.seed,
            profile=self.profile.model_dump(mode="json"),
            environment=environment(),
            weights=weights,
            settings=dict(self.settings or {}),
            probe=probe,
            audio=audio or AudioFiles(),
            error=error,
        )
