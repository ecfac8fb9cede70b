"""Selects the audio files of a list of files and directories.

A file that is named is always selected. In a directory, a file is selected by an audio extension (in any case) or
by its first bytes; other files (a README, a picture) are ignored. Directories are read in sorted order, and links
to directories are followed once.
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

MAX_ENTRIES = 50_000  # directory entries per scan
READABLE = "wav, flac, ogg, oga, opus, mp3, aiff, aif, aifc, au, snd, caf, w64, rf64"
_OLD = "wave, voc, sph, nist"  # also read, but rare
_NOT_READ = "m4a, aac, mp4, wma, webm, amr, ape, mka, ac3"  # audio formats that are not supported
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
    """A file to read, or the reason why it cannot be read. `name` is shown to the user."""

    path: Path
    name: str
    problem: str | None = None


def printable(path: str | Path) -> str:
    """Return a path as printable text, with control codes and invalid bytes escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def display_name(path: Path) -> str:
    """Return the path as the user gave it, or the short name of a shipped sample."""
    shipped = data_dir("sample_audio")
    if path.is_relative_to(shipped):
        return printable(Path(shipped.name) / path.relative_to(shipped))
    return printable(path)


def why_unreadable(error: OSError) -> str:
    """Return the message of an operating system error, shortened."""
    return (error.strerror or type(error).__name__).lower()


def kind_problem(mode: int) -> str | None:
    """Return why a file of this kind is not read, None for a regular file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not a regular file")


def scan(paths: Sequence[Path]) -> Iterator[FoundFile]:
    """Return the selected files, each once. Raises UsageError for a path that does not exist."""
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
    except OSError:  # not accessible: refused with this reason when it is read
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
    """Walk depth first, sorted by name. A directory is entered once, so a loop of links ends."""
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
            yield FoundFile(directory, display_name(root), f"stopped after {MAX_ENTRIES:,} directory entries")
            return
        yield from (_stat(entry, named=False) for entry in entries if not os.path.isdir(entry))


def _stat(path: Path, *, named: bool) -> FoundFile | None:
    """Return the file or its problem, None if it is not selected."""
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
    """Open a descriptor for reading without waiting for the writer of a pipe."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
