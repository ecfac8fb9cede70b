"""What the realtime protocols have in common: audio appended to a buffer, errors, and the ends of sessions."""

from __future__ import annotations

from typing import Any

from metronome_cli.core.types import Audio
from metronome_cli.protocols.messages import (
    AudioReceived,
    Message,
    ProtocolError,
    ServerError,
    ServerMessage,
    SessionClosed,
    SessionRejected,
    clipped,
)
from metronome_cli.protocols.pcm import pack, raw, samples_of, to_text

APPEND = "input_audio_buffer.append"
NO_EVENT = ProtocolError("not a JSON object with a type")
REJECTIONS = frozenset({
    "resource_exhausted", "rate_limit_exceeded", "too_many_sessions", "server_overloaded",
    "insufficient_quota", "queue_full", "worker_busy", "service_unavailable", "worker_connect_failed",
    "admission_rejected", "beta_api_shape_disabled",
})  # fmt: skip
EXPIRED = frozenset({"session_expired", "timeout", "idle_ttl_expired", "idle_ttl", "expired"})


def append(samples: Audio) -> Message:
    """A piece of audio, [samples] float32, for the server's buffer."""
    return pack(APPEND, audio=to_text(samples))


def appended(data: dict[str, Any]) -> AudioReceived | ProtocolError:
    """What a client put into it."""
    sound = raw(data.get("audio"))
    samples = None if sound is None else samples_of(sound)
    return ProtocolError("audio that is not base64 PCM16") if samples is None else AudioReceived(samples)


def error_of(data: dict[str, Any]) -> ServerMessage:
    """An error event: `error` is an object with code, type and message, or the message, with the code beside it."""
    code, why = code_and_text(data)
    if code in REJECTIONS:
        return SessionRejected(why)
    return SessionClosed("expired", why) if code in EXPIRED else ServerError(why, code, fatal=False)


def code_and_text(data: dict[str, Any]) -> tuple[str, str]:
    """The error's code, and both code and message on one line."""
    error = data.get("error")
    fields = error if isinstance(error, dict) else {"message": error, "code": data.get("code")}
    code = clipped(fields.get("code") or fields.get("type") or "error", 60)
    return code, clipped(f"{code}: {fields.get('message') or 'no message'}")


def session_closed(data: dict[str, Any]) -> SessionClosed:
    """The server says that the session is over: `session.closed`, `session.expired` or `session.replaced`."""
    reason = clipped(data.get("reason") or data["type"].rpartition(".")[2], 60)
    why = f"{data['type']}: {reason}"
    if reason in EXPIRED:
        return SessionClosed("expired", why)
    if reason in ("context_full", "context_length"):
        return SessionClosed("context_limit", why)
    return SessionClosed("completed" if reason == "stopped" else "connection_closed", why)
