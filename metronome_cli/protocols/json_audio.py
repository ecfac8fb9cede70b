"""What the realtime protocols have in common: audio appended to a buffer, errors, and which of them are refusals."""

from __future__ import annotations

from typing import Any

from metronome_cli.core.types import Audio
from metronome_cli.protocols.messages import (
    AudioReceived,
    Message,
    ProtocolError,
    ServerError,
    ServerMessage,
    SessionRejected,
    clipped,
)
from metronome_cli.protocols.pcm import pack, raw, samples_of, to_text

APPEND = "input_audio_buffer.append"
NO_EVENT = ProtocolError("not a JSON object with a type")
REFUSALS = ("resource_exhausted", "rate_limit_exceeded", "too_many_sessions", "server_overloaded")


def append(samples: Audio) -> Message:
    """A piece of audio, [samples] float32, for the server's buffer."""
    return pack(APPEND, audio=to_text(samples))


def appended(data: dict[str, Any]) -> AudioReceived | ProtocolError:
    """What a client put into it."""
    sound = raw(data.get("audio"))
    samples = None if sound is None else samples_of(sound)
    return ProtocolError("audio that is not base64 PCM16") if samples is None else AudioReceived(samples)


def complaint(data: dict[str, Any]) -> ServerMessage:
    """An error event: `error` is an object with code, type and message, or the message, with the code beside it."""
    error = data.get("error")
    fields = error if isinstance(error, dict) else {"message": error, "code": data.get("code")}
    code = clipped(fields.get("code") or fields.get("type") or "error", 60)
    why = clipped(f"{code}: {fields.get('message') or 'no message'}")
    return SessionRejected(why) if code in REFUSALS else ServerError(why)
