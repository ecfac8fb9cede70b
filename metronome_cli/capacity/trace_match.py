"""Writes a command's load to a trace (`--record`) and checks a trace to replay (`--replay`).

A load trace requires the audio, sample rate and frame period with which it was recorded. Audio is compared by the
SHA-256 and the order of the files, not by decoded samples: decoders and resamplers differ in the last bit between
CPUs, which does not change the load.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from metronome_cli import __version__
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import MetronomeError, UsageError
from metronome_cli.core.session import Batching
from metronome_cli.load.trace import NoRecorder, TraceRecorder
from metronome_cli.load.trace_file import (
    AudioFingerprint,
    LoadTrace,
    TraceHeader,
    TraceWriter,
    check_writable,
    read_load,
)
from metronome_cli.results.events import Observer

if TYPE_CHECKING:
    from metronome_cli.audio.streams import AlignedLoopedSpeech, LoopedSpeech
    from metronome_cli.capacity.plan import CapacityPlan

    Loop = LoopedSpeech | AlignedLoopedSpeech

_HINTS = {
    "policy_run": "remove --compare-policies and --admission-control, or record with one of them",
    "trial": "add --compare-policies or --admission-control memory, as when it was recorded",
}


class KeptLoad:
    """Load traces of one capacity run: the one to replay and the one to write, if any.

    `plan` is the run's plan with what a replayed file decides: batching and session length. Raises UsageError.
    """

    def __init__(self, plan: CapacityPlan, observer: Observer) -> None:
        self.plan = plan
        self.recorded: LoadTrace | None = None
        self.recorder: TraceRecorder = NoRecorder()
        self._observer = observer
        self._writer: TraceWriter | None = None
        if plan.record is not None:
            check_writable(plan.record)
        if plan.replay is not None:
            self.recorded = self._read(plan.replay)
            head = self.recorded.head
            self.plan = replace(plan, batching=head.batching, session_length_s=head.session_length_s)

    def _read(self, path: Path) -> LoadTrace:
        plan = self.plan
        if plan.record is not None and path.exists() and plan.record.exists() and path.samefile(plan.record):
            raise UsageError(f"--record and --replay name the same file, {path}", hint="give two")
        recorded = read_load(path)
        kind = "policy_run" if plan.compare or plan.guard else "trial"
        if not any(run.head.kind == kind for run in recorded.runs):
            other = (
                "the file has no admission run"
                if kind == "policy_run"
                else "the file has only admission runs"
            )
            raise UsageError(f"--replay: {path}: {other}", hint=_HINTS[kind])
        return recorded

    @property
    def audio_seed(self) -> int:
        """Seed of the order of the recordings."""
        return self.plan.seed if self.recorded is None else self.recorded.head.seed

    def open(self, speech: LoopedSpeech, *, whole_frames: bool) -> Loop:
        """Return the audio loop that the run uses: as `whole_frames` says, or the recorded one.

        Raises UsageError for a recorded load that does not fit it.
        """
        if self.recorded is not None:
            length = self.recorded.head.loop_samples
            whole_frames = length != speech.loop_samples and length == speech.shared().loop_samples
        loop = speech.shared() if whole_frames else speech
        if self.recorded is not None or self.plan.record is not None:
            self._compare(loop)
        return loop

    def _compare(self, loop: Loop) -> None:
        plan = self.plan
        head = load_head(
            plan.profile,
            loop,
            batching=plan.batching,
            seed=self.audio_seed,
            session_length_s=plan.length_s,
        )
        if self.recorded is not None:
            refuse_other_load(self.recorded, head)
            say_what_is_other(self.recorded, head, self._observer)
        if plan.record is not None:
            self.recorder = self._writer = TraceWriter(plan.record, head, self._tell)

    def _tell(self, error: MetronomeError) -> None:
        self._observer.notice(f"{error.message}; the load is no longer recorded; the run continues")
        self._observer.event("write_failed", {"message": error.message, "hint": error.hint})

    def close(self) -> None:
        """Close the trace at the end of the run."""
        if self._writer is not None:
            self._writer.close()


def load_head(
    profile: Profile, streams: Loop, *, batching: Batching, seed: int, session_length_s: float
) -> TraceHeader:
    """Return the header of a load trace. Reads every audio file once. Raises UsageError."""
    return TraceHeader(
        version=__version__,
        profile=profile.name,
        period_s=profile.frame.period_s,
        sample_rate=profile.frame.sample_rate,
        frame_samples=profile.frame.samples,
        decode_listening=profile.tokens.decode.listening,
        decode_speaking=profile.tokens.decode.speaking,
        batching=batching,
        seed=seed,
        session_length_s=session_length_s,
        loop_samples=streams.loop_samples,
        audio=[AudioFingerprint(file=name, sha256=_digest(path)) for name, path in streams.sources if path],
    )


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def refuse_other_load(recorded: LoadTrace, mine: TraceHeader) -> None:
    """Raise UsageError with the difference if the load trace does not fit this run."""
    head, differs = recorded.head, ""
    if (head.period_s, head.sample_rate) != (mine.period_s, mine.sample_rate):
        differs = (
            f"recorded at {head.period_s * 1e3:g} ms a frame and {head.sample_rate} Hz (profile "
            f"{head.profile}), and profile {mine.profile} has {mine.period_s * 1e3:g} ms and {mine.sample_rate} Hz"
        )
    elif head.audio != mine.audio:
        differs = f"recorded with other audio: {_other_audio(head.audio, mine.audio)}"
    elif (head.loop_samples, head.frame_samples) != (mine.loop_samples, mine.frame_samples):
        differs = (
            f"the same files made {head.loop_samples} samples of audio in version {head.version} and "
            f"{mine.loop_samples} in this one"
        )
    if differs:
        raise UsageError(
            f"--replay: {recorded.path}: {differs}",
            hint="use the profile and the --audio with which it was recorded, or record it again",
        )


def _other_audio(recorded: Sequence[AudioFingerprint], mine: Sequence[AudioFingerprint]) -> str:
    theirs, ours = {a.sha256: a.file for a in recorded}, {a.sha256: a.file for a in mine}
    missing = [file for digest, file in theirs.items() if digest not in ours]
    further = [file for digest, file in ours.items() if digest not in theirs]
    said = []
    if missing:
        said.append(f"{missing[0]} is not here as it was" + _more(len(missing) - 1))
    if further:
        said.append(f"{further[0]} was not in it" + _more(len(further) - 1))
    return "; ".join(said) or "the same files follow each other in another order"


def _more(count: int) -> str:
    return f" (and {count} more)" if count else ""


def say_what_is_other(recorded: LoadTrace, mine: TraceHeader, observer: Observer) -> None:
    """Notices: who speaks when is the file's, how many tokens that is, is the profile's; a run without an end."""
    head = recorded.head
    theirs = head.decode_listening, head.decode_speaking
    ours = mine.decode_listening, mine.decode_speaking
    if theirs != ours:
        observer.notice(
            f"{recorded.path}: recorded with {theirs[0]} and {theirs[1]} tokens a frame (listening, speaking); "
            f"here they are {ours[0]} and {ours[1]}"
        )
    if recorded.cut_short:
        observer.notice(f"{recorded.path}: its last run was cut short, and is left out")
