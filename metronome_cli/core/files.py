"""Reads and writes files that a user names: bounded in size, written whole or not at all, never blocking.

A pipe or a device is refused for reading: opening it would wait for a writer, which Ctrl-C does not interrupt.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from metronome_cli.core.errors import MetronomeError, UsageError, write_hint
from metronome_cli.core.strict_json import MAX_BYTES

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(file: Path) -> None:
    """Raises UsageError if `file` is there and is a pipe, a device or a directory: opening one may wait for ever."""
    try:
        kind = stat.S_IFMT(file.stat().st_mode)
    except (OSError, ValueError):
        return
    if kind != stat.S_IFREG:
        raise UsageError(f"{file}: not a regular file but {_KINDS.get(kind, 'something else')}")


def read_file(file: Path, most: int) -> bytes:
    """Return the bytes of a file. Raises UsageError if it is missing, unreadable, not regular, or larger than
    `most` bytes."""
    try:
        kind = stat.S_IFMT(file.stat().st_mode)
        if kind != stat.S_IFREG:
            raise UsageError(f"{file}: not a regular file but {_KINDS.get(kind, 'something else')}")
        with open(file, "rb", opener=_open) as stream:
            data = stream.read(most + 1) or b""  # None: a file that the system generates, with no data yet
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None)
        raise UsageError(f"{file}: {reason or error}") from None
    if len(data) > most:
        raise UsageError(f"{file}: larger than {_size(most)}")
    return data


def read_bounded(file: Path) -> bytes:
    """Return the bytes of a file of at most `MAX_BYTES`. Raises UsageError."""
    return read_file(file, MAX_BYTES)


def _open(file: str, flags: int) -> int:
    return os.open(file, flags | getattr(os, "O_NONBLOCK", 0))


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def check_writable(path: Path, flag: str) -> None:
    """Raise UsageError if `write_text` could not write a file of that name. Leaves no file behind."""
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        if path.exists() and not path.is_file():
            if not os.access(path, os.W_OK):
                raise PermissionError(None, "no permission to write")
            return
        there = next(parent for parent in path.absolute().parents if parent.exists() or parent.is_symlink())
        if not there.is_dir():
            raise NotADirectoryError(None, f"{there} is not a directory")
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise UsageError(
            f"{flag}: cannot write {path}: {error.strerror or error}", hint=write_hint(error)
        ) from None


def write_text(path: Path, text: str) -> Path:
    """Write text to a file, whole or not at all. Raises MetronomeError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # /dev/stdout or a pipe cannot be replaced by a rename
            _into(path, text)
        else:
            _replace(path, text)
    except OSError as error:
        raise MetronomeError(
            f"cannot write {path}: {error.strerror or error}", hint=write_hint(error)
        ) from error
    return path


def _into(path: Path, text: str) -> None:
    """Write into an existing pipe or device. A pipe without a reader is an error."""
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    os.set_blocking(handle, True)
    with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
