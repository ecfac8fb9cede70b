"""Speech for a run: read, told of, and dealt out to sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from metronome_cli.config.frame import Frame
from metronome_cli.results.audio_files import AudioFile, AudioFiles, RefusedAudioFile
from metronome_cli.results.events import Observer

if TYPE_CHECKING:
    from metronome_cli.audio.library import AudioLibrary
    from metronome_cli.audio.streams import LoopedSpeech


def open_audio(
    paths: Sequence[Path], frame: Frame, seed: int, observer: Observer
) -> tuple[LoopedSpeech, AudioFiles]:
    """Streams over these recordings, the sample audio where none are named. Raises NoAudioError."""
    from metronome_cli.audio.library import load_library, sample_paths
    from metronome_cli.audio.streams import LoopedSpeech

    observer.phase("audio", "reading speech")
    library = load_library(tuple(paths) or sample_paths(), frame.sample_rate)
    audio = audio_report(library)
    observer.event("audio", audio.model_dump(mode="json"))
    for refused in audio.files_refused:
        observer.notice(f"left out {refused.file}: {refused.reason}")
    for used in audio.files_used:
        for note in used.notes:
            observer.notice(f"{used.file}: {note}")
    return LoopedSpeech(library, frame.period_s, seed), audio


def check_audio(paths: Sequence[Path], frame: Frame) -> None:
    """Raises what `open_audio` would, for a run that is only foretold."""
    if paths:
        from metronome_cli.audio.library import check_library

        check_library(paths, frame.sample_rate)


def audio_report(library: AudioLibrary) -> AudioFiles:
    """Which files were used, with what to say of them, and which were refused and why."""
    return AudioFiles(
        files_used=[
            AudioFile(file=clip.name, seconds=clip.seconds, notes=list(clip.notes)) for clip in library.clips
        ],
        files_refused=[RefusedAudioFile(file=r.file, reason=r.reason) for r in library.refused],
    )
