"""What a message from a server can mean, and from a client, in all protocols.

Codecs are pure: messages in, these out. None of them raises on bad bytes; they return `ProtocolError`.
"""

from __future__ import annotations

from dataclasses import dataclass

from metronome_cli.core.types import Audio, EndReason

Message = bytes | str  # a binary or a text message of a websocket


@dataclass(frozen=True, slots=True)
class Ready:
    """The session has its slot and may send audio."""


@dataclass(frozen=True, slots=True)
class AudioOutput:
    """The server answered. `seconds` of audio, or of input processed; 0 if only text came.

    `silent`: the audio is digital silence, which no model produces.
    """

    seconds: float = 0.0
    text: str = ""
    silent: bool = False


@dataclass(frozen=True, slots=True)
class BacklogReported:
    """The amount of input that the server has not processed yet, as it reports it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class MarkReached:
    """The server reached the mark that was put into the audio after this many pieces."""

    pieces: int


@dataclass(frozen=True, slots=True)
class ResponseActive:
    """An answer of the model began or ended. `status` of one that ended: completed, cancelled, failed or incomplete."""

    speaking: bool
    status: str = "completed"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class UnitAnswered:
    """The model answered one unit of input, by listening or by speaking.

    `unit`: the server's number of the unit, from which answers are matched; None if the server sends none; answers
    then come in the order of the input. `context_tokens`: positions in the session's KV cache.
    """

    listening: bool
    unit: int | str | None = None
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class UserSpeech:
    """The server heard the user start to speak, or stop."""

    speaking: bool


@dataclass(frozen=True, slots=True)
class TranscriptText:
    """Words of the user as the server wrote them; `final` if they replace what came before for that item."""

    text: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Queued:
    """The session waits for a slot, as the server announced. `position` in the queue, `wait_s` as the server
    estimates it."""

    position: int | None
    wait_s: float | None


@dataclass(frozen=True, slots=True)
class Reply:
    """Messages that the client owes the server now."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A message that bears on nothing measured, or that is not known: it is counted under its name."""

    name: str


@dataclass(frozen=True, slots=True)
class SessionRejected:
    """The server rejected the session and said so."""

    why: str


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The server ended the session, for its own reason."""

    reason: EndReason
    why: str


@dataclass(frozen=True, slots=True)
class ServerError:
    """The server reports an error. A session that was ready continues after one that is not `fatal`."""

    why: str
    code: str = "error"
    fatal: bool = True


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
    | UnitAnswered
    | UserSpeech
    | TranscriptText
    | Queued
    | Reply
    | Named
    | SessionRejected
    | SessionClosed
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


@dataclass(frozen=True, slots=True)
class Answered:
    """Messages that the server sends back at once."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Leaving:
    """The client ends the session."""


ClientMessage = AudioReceived | MarkReceived | InputFinished | Answered | Leaving | ProtocolError


def clipped(text: object, limit: int = 200) -> str:
    """Text from the other side, short and on one line."""
    line = "".join(c if c.isprintable() else " " for c in str(text))
    return line if len(line) <= limit else line[: limit - 3] + "..."
