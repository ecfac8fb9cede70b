"""16-bit audio in base64 inside JSON, as the realtime protocols carry it."""

from __future__ import annotations

import base64
import binascii
import json
import string
from typing import Any

import numpy as np

from metronome_cli.core.types import Audio
from metronome_cli.protocols.messages import Message

_ALPHABET = string.ascii_letters.encode() + string.digits.encode() + b"+/"


def to_text(samples: Audio) -> str:
    """[samples] float32 within full scale as little-endian PCM16 in base64."""
    scaled = np.clip(samples, -1.0, 1.0) * 32767.0
    return base64.b64encode(scaled.round().astype("<i2").tobytes()).decode("ascii")


def raw(text: object) -> bytes | None:
    """Decode base64; None if the text is not base64."""
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def size(text: object) -> int | None:
    """Return how many bytes a base64 text decodes to, without decoding; None if it is not base64."""
    if not isinstance(text, str) or not text.isascii() or len(text) % 4:
        return None
    rest = text.encode("ascii").translate(None, _ALPHABET)
    if rest not in (b"", b"=", b"==") or not text.endswith(rest.decode("ascii")):
        return None
    return len(text) // 4 * 3 - len(rest)


def is_silence(text: str) -> bool:
    """Whether audio in base64 consists of zeros."""
    return text.startswith("A") and not text.strip("A=")


def samples_of(data: bytes) -> Audio | None:
    """PCM16 as [samples] float32; None for half a sample."""
    return None if len(data) % 2 else np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768.0


def pack(kind: str, /, **fields: object) -> str:
    """An event as JSON."""
    return json.dumps({"type": kind, **fields}, separators=(",", ":"))


def unpack(message: Message) -> dict[str, Any] | None:
    """A JSON object with a `type`; None for anything else."""
    try:
        data = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and isinstance(data.get("type"), str) else None
