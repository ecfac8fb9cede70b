"""The loop of a scripted conversation: utterances of the recordings, and room noise in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np

from metronome_cli.audio.library import AudioLibrary, Clip, load_library
from metronome_cli.audio.open_audio import open_library
from metronome_cli.audio.streams import SEAM_S, LoopedSpeech
from metronome_cli.audio.utterances import backchannel, utterances
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.core.errors import NoAudioError
from metronome_cli.core.types import Audio
from metronome_cli.load.script import Script, ScriptLine, ScriptMark
from metronome_cli.results.audio_files import AudioFiles
from metronome_cli.results.events import Observer

NOISE_DBFS = -65.0  # room noise: digital zeros upset some detectors of speech
ROUNDS_OF_UTTERANCES = 24  # utterances in the loop, at most, before it repeats

ReadFile = Callable[[str], Audio]  # samples of a file that a script names, at the library's rate


def scripted_loop(
    library: AudioLibrary, lines: Sequence[ScriptLine], period_s: float, seed: int, read: ReadFile
) -> tuple[AudioLibrary, Script]:
    """One clip that follows the script, a whole number of periods long as a loop, and where its speech lies.

    The script is repeated until every utterance was said once, or 24 of them. Raises NoAudioError if no recording has
    speech.
    """
    rate = library.sample_rate
    clips = [clip.samples for clip in library.clips]
    spoken = utterances(clips, rate)
    if not spoken and any(line.kind in ("say", "over") and line.file is None for line in lines):
        raise NoAudioError(
            "no recording has an utterance of 2 to 8 s", hint="give other recordings, or files in the script"
        )
    rng = np.random.default_rng(seed)
    order = cycle([spoken[i] for i in rng.permutation(len(spoken))]) if spoken else iter(())
    rounds = _rounds(lines, len(spoken))
    pieces, marks = _compose(list(lines) * rounds, order, backchannel(clips, rate), read, rate)
    seam = round(SEAM_S * rate)
    loop = _with_noise(pieces, seam, round(period_s * rate), rng)
    script = Script(marks, len(loop) - seam, rate)
    clip = Clip("script", loop, len(loop) / rate)
    return AudioLibrary(rate, (clip,), library.refused), script


def open_scripted(
    plan: CapacityPlan, seed: int, observer: Observer
) -> tuple[LoopedSpeech, AudioFiles, Script]:
    """Streams over the loop of the plan's script. Raises NoAudioError, and UsageError for a script that cannot be."""
    frame = plan.profile.frame
    lines = plan.script_lines()
    library, audio = open_library(plan.audio, frame, observer)
    clip, script = scripted_loop(library, lines, frame.period_s, seed, lambda name: _read(plan, name))
    return LoopedSpeech(clip, frame.period_s, seed), audio, script


def _read(plan: CapacityPlan, name: str) -> Audio:
    """A file that the script names, relative to the script."""
    path = Path(plan.script or ".").parent / name
    return load_library((path,), plan.profile.frame.sample_rate).clips[0].samples


def _rounds(lines: Sequence[ScriptLine], spoken: int) -> int:
    each = sum(line.kind in ("say", "over") and line.file is None for line in lines)
    return -(-min(spoken, ROUNDS_OF_UTTERANCES) // each) if each else 1


def _compose(
    lines: Sequence[ScriptLine], order: Iterator[Audio], short: Audio, read: ReadFile, rate: int
) -> tuple[list[Audio | int], list[ScriptMark]]:
    """Speech, or the samples of a wait, in order; and where the speech lies."""
    pieces: list[Audio | int] = []
    marks: list[ScriptMark] = []
    at = 0

    def add(piece: Audio | int) -> int:
        nonlocal at
        pieces.append(piece)
        at += piece if isinstance(piece, int) else len(piece)
        return at

    for line in lines:
        if line.kind != "say":
            add(round(line.seconds * rate))
        if line.kind == "wait":
            continue
        speech = short if line.kind == "mm-hm" else read(line.file) if line.file else next(order)
        start = at
        marks.append(ScriptMark(line.kind, start, add(speech)))
    return pieces, marks


def _with_noise(pieces: Sequence[Audio | int], seam: int, period: int, rng: np.random.Generator) -> Audio:
    """The pieces over room noise. The first `seam` samples are noise that the loop's seam takes away again."""
    length = sum(piece if isinstance(piece, int) else len(piece) for piece in pieces)
    length += -length % period
    loop = rng.normal(0.0, 10 ** (NOISE_DBFS / 20), length + seam).astype(np.float32)
    at = seam
    for piece in pieces:
        if isinstance(piece, int):
            at += piece
        else:
            loop[at : at + len(piece)] += piece
            at += len(piece)
    return np.clip(loop, -1.0, 1.0)
