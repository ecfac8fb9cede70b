"""Which files a user means by a list of files and directories.

A file that is named is always meant. In a directory, a file is meant when its extension is one of audio (in
any case) or its first bytes are; everything else (a README, a picture) is passed over quietly. Directories
are walked in sorted order, links to directories followed once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from metronome_cli.audio.containers import looks_like_audio
from metronome_cli.core.errors import UsageError
from metronome_cli.core.package_data import data_dir

MAX_ENTRIES = 50_000  # looked at in one scan
READABLE = "wav, flac, ogg, oga, opus, mp3, aiff, aif, aifc, au, snd, caf, w64, rf64"
_OLD = "wave, voc, sph, nist"  # read as well, seldom met
_NOT_READ = "m4a, aac, mp4, wma, webm, amr, ape, mka, ac3"  # sound, in formats that are not
EXTENSIONS = frozenset("." + name for name in ", ".join((READABLE, _OLD, _NOT_READ)).split(", "))
_KINDS = {
    stat.S_IFIFO: "a pipe, not a file",
    stat.S_IFSOCK: "a socket, not a file",
    stat.S_IFCHR: "a device, not a file",
    stat.S_IFBLK: "a device, not a file",
    stat.S_IFDIR: "a directory",
}


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file to read, or why it cannot be. `name` is what the user is told."""

    path: Path
    name: str
    problem: str | None = None


def printable(path: str | Path) -> str:
    """A path as text that any console and any JSON can hold: control codes and bad bytes escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def display_name(path: Path) -> str:
    """The path as the user gave it; the shipped samples by their short names."""
    shipped = data_dir("sample_audio")
    if path.is_relative_to(shipped):
        return printable(Path(shipped.name) / path.relative_to(shipped))
    return printable(path)


def why_unreadable(error: OSError) -> str:
    """An operating system's refusal in a few words."""
    return (error.strerror or type(error).__name__).lower()


def kind_problem(mode: int) -> str | None:
    """Why a file of this kind is not read; None for a regular file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not a regular file")


def scan(paths: Sequence[Path]) -> Iterator[FoundFile]:
    """Every file meant, each once. Raises UsageError for a path that does not exist."""
    for path in paths:
        if not os.path.lexists(path):
            raise UsageError(
                f"no such file or directory: {printable(path)}", hint="give audio files or directories"
            )
    seen: set[tuple[int, int]] = set()
    for path in paths:
        found = _walk(path, seen) if os.path.isdir(path) else iter([_stat(path, named=True)])
        for item in found:
            if item is not None and _first_time(item, seen):
                yield item


def _require(path: Path) -> None:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "give audio files, or directories of them"
        raise UsageError(f"no such file or directory: {printable(path)}", hint=hint) from error
    except OSError:  # there, but closed to us: refused with that reason when it is read
        return


def _first_time(item: FoundFile, seen: set[tuple[int, int]]) -> bool:
    if item.problem is not None:
        return True
    status = item.path.stat()
    key = (status.st_dev, status.st_ino)
    new = key not in seen
    seen.add(key)
    return new


def _walk(root: Path, seen: set[tuple[int, int]]) -> Iterator[FoundFile | None]:
    """Depth first, by name; directories already entered are left alone, so a loop of links ends."""
    looked_at = 0
    pending = [root]
    while pending:
        directory = pending.pop()
        try:
            status = directory.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            names = sorted(os.listdir(directory))
        except OSError as error:
            yield FoundFile(directory, display_name(directory), why_unreadable(error))
            continue
        entries = [directory / name for name in names]
        pending.extend(entry for entry in reversed(entries) if os.path.isdir(entry))
        looked_at += len(entries)
        if looked_at > MAX_ENTRIES:
            yield FoundFile(directory, display_name(root), f"looked no further than {MAX_ENTRIES:,} entries")
            return
        yield from (_stat(entry, named=False) for entry in entries if not os.path.isdir(entry))


def _stat(path: Path, *, named: bool) -> FoundFile | None:
    """The file, or its problem; None where it is not meant."""
    meant = named or (path.suffix.lower() in EXTENSIONS and not path.name.startswith("._"))
    try:
        status = path.stat()
    except FileNotFoundError:
        return FoundFile(path, display_name(path), "a link to a file that is not there") if meant else None
    except OSError as error:
        return FoundFile(path, display_name(path), why_unreadable(error)) if meant else None
    problem = kind_problem(status.st_mode)
    if not meant and (problem is not None or status.st_size == 0 or not _sounds(path)):
        return None
    return FoundFile(path, display_name(path), problem)


def _sounds(path: Path) -> bool:
    try:
        fd = open_file(path)
    except OSError:
        return False
    try:
        return looks_like_audio(os.read(fd, 16))
    except OSError:
        return False
    finally:
        os.close(fd)


def open_file(path: Path) -> int:
    """A descriptor to read from, opened without ever waiting for a writer at the other end of a pipe."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
