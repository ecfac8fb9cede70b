"""Compares the sizes that a sound file's header declares with the bytes that are present.

The audio library reads a truncated file to its end without an error and reports the shorter length as the
file's own, so only the sizes in the header show the loss. This module reads the headers of RIFF (WAV, RF64),
FORM (AIFF) and AU files. Compressed formats are checked by what they decode to.

A size is *unknown*, which is no fault, if the writer could not go back to fill it in: all ones, or one of the
values that sox (wav.c: 0x7ffff000) and arecord (aplay.c: 0x7fffff00, 0x80000000) write into a pipe.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_UNKNOWN_SIZES = {0x7FFFF000, 0x7FFFFF00, 0x7FFFFFFF, 0x80000000}
_NEARLY_ALL_ONES = 0xFFFFFF00  # some writers subtract the header's length
_SLACK_BYTES = 8  # allowed for padding and rounding
_MAX_CHUNKS = 1000
_SNIFF_BYTES = 16
_MAGICS = (b"RIFF", b"RIFX", b"RF64", b"FORM", b"fLaC", b"OggS", b".snd", b"caff", b"riff", b"ID3")


@dataclass(frozen=True, slots=True)
class Header:
    """Fields of a header: bytes of sound declared (`promised`; None if unknown) and `present`; rate and channels
    if found."""

    promised: int | None = None
    present: int = 0
    rate_hz: int | None = None
    channels: int | None = None

    @property
    def never_finished(self) -> bool:
        """True if the size is 0 but data follows: the recorder stopped before it closed the file."""
        return self.promised == 0 and self.present > 0

    @property
    def promised_share(self) -> float:
        """Declared bytes / present bytes, at least 1."""
        if self.promised is None or self.present <= 0 or self.promised <= self.present + _SLACK_BYTES:
            return 1.0
        return self.promised / self.present


def looks_like_audio(head: bytes) -> bool:
    """True if the first bytes of a file are those of a container that this program reads."""
    if head[:4] in (b"RIFF", b"RIFX", b"RF64"):
        return head[8:12] == b"WAVE"
    if head[:4] == b"FORM":
        return head[8:12] in (b"AIFF", b"AIFC")
    return any(head.startswith(magic) for magic in _MAGICS)


def read_header(fd: int) -> Header | None:
    """Return the sizes of an open WAV, AIFF or AU file, None for any other. Rewinds the file."""
    try:
        head = _read_at(fd, _SNIFF_BYTES, 0)
        parse = _PARSERS.get(head[:4])
        if parse is None or not looks_like_audio(head):
            return None
        return parse(fd, os.fstat(fd).st_size)
    except struct.error:  # the file ends inside its header
        return None
    finally:
        os.lseek(fd, 0, os.SEEK_SET)


def _read_at(fd: int, count: int, position: int) -> bytes:
    os.lseek(fd, position, os.SEEK_SET)
    return os.read(fd, count)


def _unknown(size: int) -> bool:
    return size in _UNKNOWN_SIZES or _NEARLY_ALL_ONES <= size <= 0xFFFFFFFF


def _chunks(fd: int, size: int, order: str) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, offset, declared length) of each chunk after the 12-byte form header."""
    position = 12
    for _ in range(_MAX_CHUNKS):
        head = _read_at(fd, 8, position)
        if len(head) < 8:
            return
        name, length = struct.unpack(f"{order}4sI", head)
        yield name, position + 8, length
        position += 8 + length + (length & 1)
        if position >= size:
            return


def _wav(fd: int, size: int) -> Header:
    order = ">" if _read_at(fd, 4, 0) == b"RIFX" else "<"
    form_size = struct.unpack(f"{order}I", _read_at(fd, 4, 4))[0]
    rate = channels = wide = None
    for name, start, length in _chunks(fd, size, order):
        if name == b"ds64" and length >= 16:  # RF64 stores the 64-bit sizes here
            wide = struct.unpack("<Q", _read_at(fd, 8, start + 8))[0]
        if name == b"fmt " and length >= 16:
            channels, rate = struct.unpack(f"{order}HI", _read_at(fd, 6, start + 2))
        if name == b"data":
            promised = wide if wide is not None and length == 0xFFFFFFFF else length
            present = size - start
            if (
                promised == 0 and form_size >= start - 8 + present
            ):  # other chunks, counted in the size of the form
                present = 0
            known = wide is not None or not _unknown(length)
            return Header(promised if known else None, present, rate, channels)
    return Header(rate_hz=rate, channels=channels)


def _aiff(fd: int, size: int) -> Header:
    channels = None
    for name, start, length in _chunks(fd, size, ">"):
        if name == b"COMM" and length >= 18:
            channels = struct.unpack(">H", _read_at(fd, 2, start))[0]
        if name == b"SSND":  # its first 8 bytes are an offset and a block size
            return Header(None if _unknown(length) else max(0, length - 8), size - start - 8, None, channels)
    return Header(channels=channels)


def _au(fd: int, size: int) -> Header:
    start, length, _, rate, channels = struct.unpack(">5I", _read_at(fd, 20, 4))
    return Header(None if _unknown(length) else length, max(0, size - start), rate, channels)


_PARSERS = {b"RIFF": _wav, b"RIFX": _wav, b"RF64": _wav, b"FORM": _aiff, b".snd": _au}
