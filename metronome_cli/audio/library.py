"""Loads the recordings of a run: reads each file, checks it and resamples it to one rate.

A file is used, used with notes (`Clip.notes`), or refused with a reason (`RefusedFile`). The run continues with
the usable files. The rules are in `sound_checks.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from metronome_cli.audio.containers import read_header
from metronome_cli.audio.decode import DecodeError
from metronome_cli.audio.resample import resample
from metronome_cli.audio.scan import (
    READABLE,
    FoundFile,
    kind_problem,
    open_file,
    printable,
    scan,
    why_unreadable,
)
from metronome_cli.audio.sound_checks import read_sound
from metronome_cli.core.errors import NoAudioError
from metronome_cli.core.package_data import data_dir
from metronome_cli.core.types import Audio

MAX_LIBRARY_S = 3600.0  # 230 MB at 16 kHz; more speech does not change a result
_NAMED_REASONS = 3


@dataclass(frozen=True, slots=True)
class Clip:
    """A usable file. samples: [n] float32, mono, within full scale, at the library's rate."""

    name: str
    samples: Audio = field(repr=False)
    seconds: float
    notes: tuple[str, ...] = ()
    path: Path | None = None  # None: not read from a file


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file that is not used, and the reason."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class AudioLibrary:
    """One or more clips, all at `sample_rate` Hz."""

    sample_rate: int
    clips: tuple[Clip, ...]
    refused: tuple[RefusedFile, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(clip.seconds for clip in self.clips)


def sample_paths() -> tuple[Path, ...]:
    """Return the speech that ships with the program."""
    return (data_dir("sample_audio"),)


def load_library(paths: Sequence[Path], sample_rate: int) -> AudioLibrary:
    """Read files and directories to mono at `sample_rate` (Hz).

    At most 10 minutes per file and 60 minutes in all are kept. Raises UsageError for a path that does not exist,
    and NoAudioError if no file is usable.
    """
    clips: list[Clip] = []
    refused: list[RefusedFile] = []
    unread, seconds = 0, 0.0
    for found in scan(paths):
        if seconds >= MAX_LIBRARY_S:
            unread += 1
            continue
        outcome = _load(found, sample_rate)
        if isinstance(outcome, Clip):
            clips.append(outcome)
            seconds += outcome.seconds
        else:
            refused.append(outcome)
    if unread:
        refused.append(
            RefusedFile(f"{unread:,} more", f"not read: {MAX_LIBRARY_S / 60:.0f} min of speech are enough")
        )
    if not clips:
        raise _nothing_left(paths, refused)
    return AudioLibrary(sample_rate, tuple(clips), tuple(refused))


def check_library(paths: Sequence[Path], sample_rate: int) -> None:
    """Raise what `load_library` would raise; stop at the first usable file."""
    refused: list[RefusedFile] = []
    for found in scan(paths):
        outcome = _load(found, sample_rate)
        if isinstance(outcome, Clip):
            return
        refused.append(outcome)
    raise _nothing_left(paths, refused)


def _load(found: FoundFile, sample_rate: int) -> Clip | RefusedFile:
    if found.problem is not None:
        return RefusedFile(found.name, found.problem)
    try:
        fd = open_file(found.path)
    except OSError as error:
        return RefusedFile(found.name, why_unreadable(error))
    try:
        return _read(fd, found, sample_rate)
    except DecodeError as error:
        return RefusedFile(found.name, str(error))
    except OSError as error:
        return RefusedFile(found.name, why_unreadable(error))
    finally:
        os.close(fd)


def _read(fd: int, found: FoundFile, sample_rate: int) -> Clip | RefusedFile:
    status = os.fstat(fd)  # status of the opened file, which may differ from the one scanned before
    problem = kind_problem(status.st_mode) or ("an empty file" if status.st_size == 0 else None)
    if problem is not None:
        return RefusedFile(found.name, problem)
    samples, rate, notes = read_sound(fd, read_header(fd))
    samples = resample(samples, rate, sample_rate)
    return Clip(found.name, samples, len(samples) / sample_rate, notes, found.path)


def _nothing_left(paths: Sequence[Path], refused: Iterable[RefusedFile]) -> NoAudioError:
    reasons = [f"{refusal.file}: {refusal.reason}" for refusal in refused]
    where = ", ".join(printable(path) for path in paths)
    hint = f"formats that are read: {READABLE}"
    if not reasons:
        return NoAudioError(f"no audio files in {where}", hint=hint)
    more = len(reasons) - _NAMED_REASONS
    named = "; ".join(reasons[:_NAMED_REASONS]) + (f"; and {more} more" if more > 0 else "")
    return NoAudioError(f"no usable audio: {named}", hint=hint)
