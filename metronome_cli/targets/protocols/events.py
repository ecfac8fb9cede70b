"""What a message from a server can mean, and from a client; every protocol speaks in these.

Codecs are pure: messages in, these out. None of them raises on bad bytes; they answer `Garbage`.
"""

from __future__ import annotations

from dataclasses import dataclass

from metronome_cli.engine.types import Audio

Message = bytes | str  # a binary or a text message of a websocket


@dataclass(frozen=True, slots=True)
class Ready:
    """The session is seated and may send audio."""


@dataclass(frozen=True, slots=True)
class Output:
    """The server answered. `seconds` of audio, or of input dealt with; 0 where only text came."""

    seconds: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The server says how much input it has not dealt with yet."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Echo:
    """The server reached the mark that was put into the audio after this many pieces."""

    pieces: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The model began (or ended) to speak: while it does, every frame is owed an answer."""

    speaking: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The server turned the session away, and said so."""

    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The server reports an error of its own."""

    why: str


@dataclass(frozen=True, slots=True)
class Garbage:
    """Not a message of this protocol."""

    what: str


Event = Ready | Output | Backlog | Echo | Turn | Refused | Failed | Garbage


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """Audio from a client: [samples] float32 at the protocol's rate."""

    samples: Audio


@dataclass(frozen=True, slots=True)
class Marked:
    """A client's mark in its audio, to be echoed when it is reached."""

    id: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The client sends no more audio."""


Wish = Heard | Marked | Finished | Garbage


def clipped(text: object, limit: int = 200) -> str:
    """Text from the other side, short and on one line."""
    line = "".join(c if c.isprintable() else " " for c in str(text))
    return line if len(line) <= limit else line[: limit - 3] + "..."
