"""Opens the recordings of a run and reports which files are used."""

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
    """Return streams over the recordings, or over the sample audio if no path is given. Raises NoAudioError."""
    from metronome_cli.audio.streams import LoopedSpeech

    library, audio = open_library(paths, frame, observer)
    return LoopedSpeech(library, frame.period_s, seed), audio


def open_library(paths: Sequence[Path], frame: Frame, observer: Observer) -> tuple[AudioLibrary, AudioFiles]:
    """Return the recordings, or the sample audio if no path is given. Raises NoAudioError."""
    from metronome_cli.audio.library import load_library, sample_paths

    observer.phase("audio", "reading speech")
    library = load_library(tuple(paths) or sample_paths(), frame.sample_rate)
    audio = audio_report(library)
    observer.event("audio", audio.model_dump(mode="json"))
    for refused in audio.files_refused:
        observer.notice(f"left out {refused.file}: {refused.reason}")
    for used in audio.files_used:
        for note in used.notes:
            observer.notice(f"{used.file}: {note}")
    return library, audio


def check_audio(paths: Sequence[Path], frame: Frame) -> None:
    """Raise what `open_audio` would raise, for a dry run."""
    if paths:
        from metronome_cli.audio.library import check_library

        check_library(paths, frame.sample_rate)


def audio_report(library: AudioLibrary) -> AudioFiles:
    """Return the files used, with notes, and the files refused, with reasons."""
    return AudioFiles(
        files_used=[
            AudioFile(file=clip.name, seconds=clip.seconds, notes=list(clip.notes)) for clip in library.clips
        ],
        files_refused=[RefusedAudioFile(file=r.file, reason=r.reason) for r in library.refused],
    )
