"""Reading a file that a user names: a regular one, of bearable size, and never waiting for anybody.

A pipe or a device is refused: opening one would wait for a writer, out of reach of Ctrl-C, and some never end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from metronome_cli.core.errors import UsageError

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_file(file: Path, most: int) -> bytes:
    """Its bytes. Raises UsageError for one that is missing, unreadable, not regular, or larger than `most`."""
    try:
        kind = stat.S_IFMT(file.stat().st_mode)
        if kind != stat.S_IFREG:
            raise UsageError(f"{file}: not a regular file but {_KINDS.get(kind, 'something else')}")
        with open(file, "rb", opener=_open) as stream:
            data = (
                stream.read(most + 1) or b""
            )  # None where the system makes the file up, and has nothing yet
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None)
        raise UsageError(f"{file}: {reason or error}") from None
    if len(data) > most:
        raise UsageError(f"{file}: larger than {_size(most)}")
    return data


def _open(file: str, flags: int) -> int:
    return os.open(file, flags | getattr(os, "O_NONBLOCK", 0))


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
