"""Sound files that tests make for themselves: healthy ones, and each kind of odd one."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

RATE = 16_000
Samples = npt.NDArray[np.float64]


def voice(seconds: float = 2.0, rate: int = RATE, pitch_hz: float = 120.0) -> Samples:
    """Something like a voice: harmonics that rise and fall four times a second. Peak 0.3."""
    t = np.arange(round(seconds * rate)) / rate
    tone = sum(np.sin(2 * np.pi * pitch_hz * n * t + n) / n for n in range(1, 9))
    sound = tone * (0.55 - 0.45 * np.cos(2 * np.pi * 4 * t))
    loud: Samples = 0.3 * sound / np.abs(sound).max()
    return loud


def write(path: Path, samples: npt.ArrayLike, rate: int = RATE, **kind: str) -> Path:
    soundfile.write(path, np.asarray(samples), rate, **kind)
    return path


def pcm16(samples: npt.ArrayLike) -> bytes:
    return np.round(np.asarray(samples) * 32767).astype("<i2").tobytes()


def wav_bytes(
    data: bytes,
    *,
    rate: int = RATE,
    channels: int = 1,
    data_size: int | None = None,
    form_size: int | None = None,
    before: bytes = b"",
    after: bytes = b"",
) -> bytes:
    """A 16-bit WAV whose header says what it is told to; whole chunks may stand before and after the data."""
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * channels * 2, channels * 2, 16)
    size = len(data) if data_size is None else data_size
    body = b"WAVE" + fmt + before + struct.pack("<4sI", b"data", size) + data + after
    return struct.pack("<4sI", b"RIFF", len(body) if form_size is None else form_size) + body


def chunk(name: bytes, body: bytes) -> bytes:
    """One RIFF chunk, padded to an even length."""
    return struct.pack("<4sI", name, len(body)) + body + b"\0" * (len(body) % 2)


def cut(path: Path, share: float) -> Path:
    """Keep the first `share` of a file's bytes."""
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    return path
