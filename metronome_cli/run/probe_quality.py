"""`probe quality`: from settings to a report of what the bound does to answers and to a long stream."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from metronome_cli import __version__
from metronome_cli.config.policy import SinkPositions
from metronome_cli.config.profile import Profile
from metronome_cli.config.quantities import format_size
from metronome_cli.errors import Status, Verdict, exit_code_for
from metronome_cli.quality.material import Text, own_questions, own_text, read_questions, read_text
from metronome_cli.quality.subject import Subject, load_subject
from metronome_cli.quality.sweep import SINKS, WINDOWS, Prober, Sweep, grid
from metronome_cli.report.environment import environment
from metronome_cli.report.model import Report
from metronome_cli.report.probe import Probe
from metronome_cli.report.quality import Quality
from metronome_cli.run.observer import Observer, Observers, progress_only
from metronome_cli.run.quality_options import QualityOptions
from metronome_cli.run.quality_part import quality_part
from metronome_cli.run.stop import Stop


@dataclass(frozen=True, slots=True)
class QualityRun:
    """What `probe quality` runs. `model`: a directory, a GGUF file, or a name in the local cache."""

    model: str
    profile: Profile
    asked: QualityOptions = field(default_factory=QualityOptions)
    positions: tuple[SinkPositions, ...] = ("rolling", "absolute")
    audio: tuple[Path, ...] = ()
    seed: int = 0
    device: str = "auto"
    argv: tuple[str, ...] = ()
    settings: dict[str, object] | None = None

    @property
    def margin(self) -> float:
        """In nats a token."""
        return math.log1p(self.asked.margin)


def run_quality(run: QualityRun, observer: Observer | None = None, stop: Stop | None = None) -> Report:
    """The quality of a text model under every variant of the grid.

    Raises UsageError for a model without real weights or a text that is too short. Variants that were done
    before a stop stay in the report.
    """
    from metronome_cli.targets.inprocess import pick_device

    observer, stop = observer or Observers(), stop or Stop()
    began_s, started_at = time.perf_counter(), datetime.now(UTC)
    text = read_text(run.asked.text) if run.asked.text else own_text()
    observer.phase("load", f"loading {run.profile.name}")
    subject = load_subject(run.model, pick_device(run.device))
    sweep = sweep_of(run, subject, text)
    observer.phase("quality", f"{len(sweep.variants)} variants, {len(sweep.text):,} tokens of {text.name}")

    def progress(what: str, share: float) -> bool:
        observer.snapshot(
            progress_only(
                "quality", what, time.perf_counter() - began_s, share, deadline_ms=0.0, random_weights=False
            )
        )
        return not stop()

    prober = Prober(subject, sweep, progress)
    prober.run()
    part = quality_part(prober, text.name, run.margin)
    return quality_report(run, part, subject.source, stop, began_s, started_at)


def sweep_of(run: QualityRun, subject: Subject, text: Text) -> Sweep:
    """The sweep on this subject's tokens. A stretch is an eighth of the stream, in whole hundreds."""
    asked = run.asked
    ids = subject.tokens.encode(text.text)
    ids = ids[: asked.stream] if asked.stream else ids
    questions = read_questions(asked.questions) if asked.questions else own_questions()
    return Sweep(
        variants=grid(asked.windows or WINDOWS, asked.sinks or SINKS, run.positions),
        text=ids,
        stretch=asked.stretch or max(100, len(ids) // 800 * 100),
        questions=questions,
        turns=asked.turns,
        sessions=asked.sessions,
        spoken=asked.spoken,
        seed=run.seed,
    )


def quality_report(
    run: QualityRun, part: Quality, source: str, stop: Stop, began_s: float, started_at: datetime
) -> Report:
    """The report around the part."""
    status: Status = "interrupted" if stop() else "complete"
    verdict: Verdict | None = "inconclusive" if stop() else None
    return Report(
        command="probe",
        status=status,
        verdict=verdict,
        exit_code=exit_code_for(status, verdict, signum=stop.signum),
        answer=answer_of(part),
        clock="real",
        started_at=started_at,
        duration_s=time.perf_counter() - began_s,
        argv=list(run.argv),
        version=__version__,
        seed=run.seed,
        profile=run.profile.model_dump(mode="json"),
        environment=environment(),
        weights=source,
        settings=dict(run.settings or {}),
        probe=Probe(kind="quality", quality=part),
    )


def answer_of(part: Quality) -> str:
    """What `probe quality` says first."""
    if not part.variants:
        return "Nothing was measured."
    margin = f"{100 * math.expm1(part.margin):.0f} %"
    best = part.recommended
    if best is None:
        return f"No (W, S) that was tried was shown to be within {margin} of unbounded: see why in the table."
    size = "" if best.bytes_per_session is None else f", {format_size(best.bytes_per_session)} a session"
    return (
        f"Smallest that cannot be told from unbounded (within {margin}): {best.name}{size}, "
        f"tested up to an age of {best.tested:,} tokens."
    )
