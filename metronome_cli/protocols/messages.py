"""What a message from a server can mean, and from a client; every protocol speaks in these.

Codecs are pure: messages in, these out. None of them raises on bad bytes; they answer `Garbage`.
"""

from __future__ import annotations

from dataclasses import dataclass

from metronome_cli.core.types import Audio

Message = bytes | str  # a binary or a text message of a websocket


@dataclass(frozen=True, slots=True)
class Ready:
    """The session is seated and may send audio."""


@dataclass(frozen=True, slots=True)
class AudioOutput:
    """The server answered. `seconds` of audio, or of input dealt with; 0 where only text came."""

    seconds: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class BacklogReported:
    """The server says how much input it has not dealt with yet."""

    seconds: float


@dataclass(frozen=True, slots=True)
class MarkReached:
    """The server reached the mark that was put into the audio after this many pieces."""

    pieces: int


@dataclass(frozen=True, slots=True)
class ResponseActive:
    """The model began (or ended) to speak: while it does, every frame is owed an answer."""

    speaking: bool


@dataclass(frozen=True, slots=True)
class SessionRejected:
    """The server turned the session away, and said so."""

    why: str


@dataclass(frozen=True, slots=True)
class ServerError:
    """The server reports an error of its own."""

    why: str


@dataclass(frozen=True, slots=True)
class ProtocolError:
    """Not a message of this protocol."""

    what: str


ServerMessage = (
    Ready
    | AudioOutput
    | BacklogReported
    | MarkReached
    | ResponseActive
    | SessionRejected
    | ServerError
    | ProtocolError
)


@dataclass(frozen=True, slots=True, eq=False)
class AudioReceived:
    """Audio from a client: [samples] float32 at the protocol's rate."""

    samples: Audio


@dataclass(frozen=True, slots=True)
class MarkReceived:
    """A client's mark in its audio, to be echoed when it is reached."""

    id: int


@dataclass(frozen=True, slots=True)
class InputFinished:
    """The client sends no more audio."""


ClientMessage = AudioReceived | MarkReceived | InputFinished | ProtocolError


def clipped(text: object, limit: int = 200) -> str:
    """Text from the other side, short and on one line."""
    line = "".join(c if c.isprintable() else " " for c in str(text))
    return line if len(line) <= limit else line[: limit - 3] + "..."
