"""`probe quality`: from settings to a report of what the bound does to answers and to a long stream."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from metronome_cli.audio.open_audio import audio_report
from metronome_cli.config.cache_policy import SinkPositions
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import format_size
from metronome_cli.core.stop import LoadInterrupted, StopRequest
from metronome_cli.probe.quality.conversations import conversations
from metronome_cli.probe.quality.material import (
    ReadingText,
    bundled_questions,
    bundled_text,
    bundled_transcripts,
    read_questions,
    read_text,
    read_transcripts,
)
from metronome_cli.probe.quality.subject import ProbedModel, load_subject
from metronome_cli.probe.quality.sweep import (
    SINKS,
    WINDOWS,
    ProgressCallback,
    QualityProbe,
    QualitySweep,
    grid,
)
from metronome_cli.probe.quality_options import QualityOptions
from metronome_cli.probe.quality_part import quality_part
from metronome_cli.results.audio_files import AudioFiles
from metronome_cli.results.events import Observer, ObserverGroup, progress_only
from metronome_cli.results.latency_result import ProbeResult
from metronome_cli.results.probe_draft import NOT_LOADED, ProbeDraft
from metronome_cli.results.quality_result import QualityResult, Recommended
from metronome_cli.results.run_report import Report

if TYPE_CHECKING:
    from metronome_cli.probe.quality.spoken_questions import (
        ProbedSpeechModel,
        SpeechQualityProbe,
        SpokenQuestion,
    )

LEAST_STREAM = 200  # tokens of a part


@dataclass(frozen=True, slots=True)
class QualityProbePlan:
    """What `probe quality` runs. `model`: a text decoder's directory, GGUF file, or name in the local cache;
    None for the profile's speech model, whose checkpoint is `weights`."""

    model: str | None
    profile: Profile
    weights: Path | None = None
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
        return math.log1p(self.asked.perplexity_margin)


def run_quality(
    run: QualityProbePlan, observer: Observer | None = None, stop: StopRequest | None = None
) -> Report:
    """The quality of a model under every variant of the grid.

    Raises UsageError for a model without real weights, or for nothing to read or ask. Variants that were
    done before a stop stay in the report.
    """
    observer, stop = observer or ObserverGroup(), stop or StopRequest()
    draft = ProbeDraft(run.profile, run.seed, run.argv, run.settings)

    def progress(what: str, share: float) -> bool:
        elapsed_s = time.perf_counter() - draft.began_s
        observer.snapshot(progress_only("quality", what, elapsed_s, share, random_weights=False))
        return not stop()

    observer.phase("load", f"loading {run.profile.name}")
    try:
        with stop.during_load():
            prober, text, audio = (_text if run.model is not None else _speech)(run, observer, progress)
    except LoadInterrupted:
        return draft.report(NOT_LOADED, ProbeResult(kind="quality"), stop=stop)
    sweep = prober.sweep
    tokens = sum(map(len, sweep.texts))
    observer.phase("quality", f"{len(sweep.variants)} variants, {tokens:,} tokens of text")
    prober.run()
    part = quality_part(prober, text, run.margin)
    probe = ProbeResult(kind="quality", quality=part)
    return draft.report(answer_of(part), probe, weights=prober.subject.source, audio=audio, stop=stop)


def _text(
    run: QualityProbePlan, observer: Observer, progress: ProgressCallback
) -> tuple[QualityProbe, str, AudioFiles]:
    from metronome_cli.backends.in_process.engine import pick_device

    assert run.model is not None
    text = read_text(run.asked.text) if run.asked.text else bundled_text()
    subject = load_subject(run.model, pick_device(run.device))
    return QualityProbe(subject, sweep_of(run, subject, text), progress), text.name, AudioFiles()


def _speech(
    run: QualityProbePlan, observer: Observer, progress: ProgressCallback
) -> tuple[QualityProbe, str, AudioFiles]:
    from metronome_cli.audio.library import load_library, sample_paths
    from metronome_cli.backends.in_process.engine import pick_device
    from metronome_cli.probe.quality.spoken_questions import load_speech_subject, spoken_questions

    assert run.weights is not None
    library = load_library(run.audio or sample_paths(), run.profile.frame.sample_rate)
    recorded = read_transcripts(run.asked.transcripts) if run.asked.transcripts else bundled_transcripts()
    questions = spoken_questions(library, recorded)
    subject = load_speech_subject(run.profile, run.weights, pick_device(run.device), run.seed)
    return speech_prober(run, subject, questions, progress), "", audio_report(library)


def speech_prober(
    run: QualityProbePlan,
    subject: ProbedSpeechModel,
    questions: Sequence[SpokenQuestion],
    progress: ProgressCallback,
) -> SpeechQualityProbe:
    """The sweep of a speech model: questions only, each session going round them from its own start."""
    from metronome_cli.probe.quality.spoken_questions import SpeechQualityProbe

    asked = run.asked
    talks = conversations(questions, asked.sessions, asked.questions_per_session or 1)
    sweep = QualitySweep(
        variants=grid(asked.windows or WINDOWS, asked.sinks or SINKS, run.positions),
        questions=[one.question for one in questions],
        turns=asked.questions_per_session or 1,
        sessions=asked.sessions,
        seed=run.seed,
    )
    return SpeechQualityProbe(subject, sweep, talks, progress)


def sweep_of(run: QualityProbePlan, subject: ProbedModel, text: ReadingText) -> QualitySweep:
    """The sweep on this subject's tokens. A stretch is an eighth of a stream, in whole hundreds."""
    asked = run.asked
    texts = split_text(subject.tokens.encode(text.text), asked.text_sessions, asked.text_tokens, text.name)
    questions = read_questions(asked.questions) if asked.questions else bundled_questions()
    return QualitySweep(
        variants=grid(asked.windows or WINDOWS, asked.sinks or SINKS, run.positions),
        texts=texts,
        stretch=asked.age_bucket or max(100, len(texts[0]) // 800 * 100),
        questions=questions,
        turns=asked.questions_per_session,
        sessions=asked.sessions,
        spoken=asked.free_run_tokens,
        seed=run.seed,
        margin=run.margin,
    )


def split_text(ids: Sequence[int], streams: int, length: int, name: str) -> list[Sequence[int]]:
    """`streams` parts of `length` tokens (0: all there is for each), spread evenly over a text.

    One stream takes what there is. Raises UsageError for a text that is too short for more.
    """
    each = len(ids) // streams
    if streams > 1 and (length > each or each < LEAST_STREAM):
        raise UsageError(
            f"--text-sessions {streams}: {name} has {len(ids):,} tokens, {each:,} for each stream of "
            f"{length or LEAST_STREAM:,}",
            hint="bring a longer text, or ask for fewer or shorter streams",
        )
    return [ids[each * at : each * at + (length or each)] for at in range(streams)]


def answer_of(part: QualityResult) -> str:
    """Return the summary of `probe quality`."""
    if not part.variants:
        return "Nothing was measured."
    margin = f"{100 * math.expm1(part.margin):.0f} %"
    best = part.recommended
    if best is None:
        return f"No (W, S) that was tried was shown to be within {margin} of unbounded: see why in the table."
    size = "" if best.bytes_per_session is None else f", {format_size(best.bytes_per_session)} a session"
    past = f" {_past(part, best)}" if 0 < best.compared_up_to_tokens < best.tested_up_to_tokens else ""
    return (
        f"Smallest that cannot be told from unbounded (within {margin}): {best.name}{size}, "
        f"tested up to an age of {best.tested_up_to_tokens:,} tokens.{past}"
    )


def _past(part: QualityResult, best: Recommended) -> str:
    """Why there was nothing to compare with at the oldest ages."""
    unbounded = part.variants[0].text_breakdown
    broke = f", and breaks at {unbounded.age:,} tokens" if unbounded is not None else ""
    return (
        f"Unbounded is a measure only up to {best.compared_up_to_tokens:,} tokens: past that it is beyond its trained "
        f"context{broke}; {best.name} does not."
    )
