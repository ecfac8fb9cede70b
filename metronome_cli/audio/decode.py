"""Decodes an open audio file to mono samples at its own rate, in blocks, so that memory is bounded.

At most `MAX_SECONDS` or `MAX_SAMPLES` of a file are read, whichever is less. A file that is damaged in the
middle gives the part before the damage, to within `_FINE_BLOCK` frames.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import soundfile

from metronome_cli.audio.quiet import decoder_muted
from metronome_cli.core.types import Audio

MAX_SECONDS = 600
MAX_SAMPLES = 2**25  # a channel; 128 MiB as float32; reached before MAX_SECONDS only above 55.9 kHz
MIN_RATE_HZ, MAX_RATE_HZ = 1000, 768_000
FULL = 0.98  # share of full scale; 8-bit and mu-law files reach no higher
_BLOCK_VALUES = 2**18  # frames x channels
_FINE_BLOCK = 256
_NO_LENGTH = 2**48  # frames; the library reports more if the length is unknown


class DecodeError(Exception):
    """Raised with the reason if a file cannot be decoded."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts over every channel, before the channels are mixed.

    `flat`: samples at full scale that equal the one before, which clipping produces and loud speech does not.
    `power`: sum of squares.
    """

    values: int = 0
    full_scale: int = 0
    flat: int = 0
    not_finite: int = 0
    peak: float = 0.0
    power: float = 0.0

    def plus(self, block: npt.NDArray[np.float32]) -> Tally:
        """block: [frames, channels]."""
        size = np.abs(block)
        full = size >= FULL
        bad = int(block.size - np.isfinite(block).sum())
        return Tally(
            values=self.values + block.size,
            full_scale=self.full_scale + int(full.sum()),
            flat=self.flat + int((full[1:] & (block[1:] == block[:-1])).sum()),
            not_finite=self.not_finite + bad,
            peak=max(self.peak, float(size.max(initial=0.0))) if not bad else self.peak,
            power=self.power + (0.0 if bad else float(np.square(block, dtype=np.float64).sum())),
        )


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded sound. samples: [frames] float32, mean of all channels, at `rate_hz`. `announced`: frames that the
    file declares; None if unknown."""

    samples: Audio = field(repr=False)
    rate_hz: int
    channels: int
    announced: int | None
    tally: Tally
    more: bool = False  # the file continues after the last sample read
    damage: str | None = None  # error of the decoder, if it stopped early

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate_hz


def decode(fd: int, channel: int | None = None) -> Decoded:
    """Decode an open file up to the limits: the mean of its channels, or one channel.

    Raises DecodeError. Messages that the decoder prints are suppressed.
    """
    with decoder_muted():
        decoded = _decode(fd, channel, _BLOCK_VALUES)
        if decoded.damage is not None:  # the failing block is lost: decode again in smaller blocks
            decoded = replace(_decode(fd, channel, _FINE_BLOCK), damage=decoded.damage)
    return decoded


def _decode(fd: int, channel: int | None, block_values: int) -> Decoded:
    os.lseek(fd, 0, os.SEEK_SET)
    try:
        file = soundfile.SoundFile(fd, closefd=False)
    except (soundfile.SoundFileError, OSError) as error:
        raise DecodeError(_said(error)) from error
    with file:
        if not MIN_RATE_HZ <= file.samplerate <= MAX_RATE_HZ:
            raise DecodeError(
                f"a rate of {file.samplerate:,} Hz; {MIN_RATE_HZ:,} to {MAX_RATE_HZ:,} Hz are read"
            )
        return _read(file, channel, max(1, block_values // file.channels))


def _read(file: soundfile.SoundFile, channel: int | None, block: int) -> Decoded:
    limit = min(MAX_SECONDS * file.samplerate, MAX_SAMPLES)
    mixed: list[Audio] = []
    tally, frames, damage = Tally(), 0, None
    while frames <= limit:  # one sample beyond the limit shows whether more follows
        try:
            part = file.read(min(block, limit + 1 - frames), dtype="float32", always_2d=True)
        except (soundfile.SoundFileError, OSError) as error:
            damage = _said(error)
            break
        if len(part) == 0:
            break
        tally = tally.plus(part)
        if tally.not_finite == 0:
            mixed.append(part.mean(axis=1) if channel is None else part[:, channel].copy())
        frames += len(part)
    samples = np.concatenate(mixed) if mixed else np.zeros(0, np.float32)
    announced = file.frames if 0 <= file.frames < _NO_LENGTH else None
    more = frames > limit
    return Decoded(samples[:limit], file.samplerate, file.channels, announced, tally, more, damage)


def _said(error: Exception) -> str:
    text = getattr(error, "error_string", None) or str(error)
    return str(text).removeprefix("Error : ").strip().rstrip(".").lower() or type(error).__name__
