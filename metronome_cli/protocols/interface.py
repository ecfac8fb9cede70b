"""Both sides of a protocol, as small codecs without a socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from metronome_cli.core.types import Audio
from metronome_cli.protocols.messages import ClientMessage, Message, ServerMessage


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """How answers are matched to frames of input (backends/websocket/answers.py).

    `owed`: why every frame is owed an answer: the protocol promises it, an idle session showed it, or no frame is
    owed one. `hold_back_s`: input that the server answers only after more input, in seconds; None until an idle session
    measured it.
    """

    kind: Literal["counted", "units", "bursts", "playback"]
    owed: Literal["promised", "learned", "none"]
    hold_back_s: float | None = None


@dataclass(frozen=True, slots=True)
class ProtocolTraits:
    """What holds for every session of a protocol.

    `answers`: how answers are matched unless an idle call shows more. `learns`: an idle call may show that each frame
    gets an answer, and how much input the server holds back. `unit_s`: input that the model takes at a time, if the
    protocol fixes it. `key_header`: the header that carries a key, `key_prefix` before it.
    """

    name: str
    path: str
    sample_rate: int
    answers: AnswerRule
    learns: bool = False
    unit_s: float | None = None
    subprotocols: tuple[str, ...] = ()
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "

    @property
    def steady(self) -> bool:
        """Every frame of input gets output of its own, counted in seconds."""
        return self.answers.kind == "counted"


class ClientCodec(Protocol):
    """The client's side. One object per session."""

    traits: ProtocolTraits

    @property
    def encode(self) -> Callable[[Audio], Message] | None:
        """Return the message of a piece of audio if it depends on nothing else; `audio` is then this and what comes
        `after`. None if the codec keeps an encoder.
        """

    @property
    def wrap(self) -> Callable[[Sequence[bytes]], Callable[[Sequence[bytes]], Sequence[Message]]] | None:
        """Return a function that makes messages from Opus packets, given the two header packets.

        None if the protocol does not carry Opus.
        """

    def opening(self) -> Sequence[Message]:
        """Sent as soon as the socket is open."""

    def started(self) -> Sequence[Message]:
        """Sent when the server is ready, before any audio."""

    def audio(self, samples: Audio) -> Sequence[Message]:
        """One piece of audio, [samples] float32 at the protocol's rate."""

    def after(self) -> Sequence[Message]:
        """Sent after each piece of audio, beside it."""

    def closing(self) -> Sequence[Message]:
        """Sent after the last audio."""

    def leaving(self) -> Sequence[Message]:
        """Sent when the client ends the session, if the protocol has a message for it."""

    def read(self, message: Message) -> Sequence[ServerMessage]:
        """Return the meaning of a server's message. Never raises."""


class ServerCodec(Protocol):
    """The server's side. One object per session."""

    traits: ProtocolTraits

    def greeting(self) -> Sequence[Message]:
        """Sent when the session has its slot."""

    def refusal(self, why: str) -> Sequence[Message]:
        """Sent when no slot is free; the socket is closed after it."""

    def read(self, message: Message) -> Sequence[ClientMessage]:
        """Return the meaning of a client's message. Never raises."""

    def connected(self, headers: Mapping[str, str]) -> None:
        """Take the headers of the client's websocket upgrade."""

    def speaks(self, drawn: bool) -> bool:
        """Return whether the model speaks in the next frame; `drawn` is the value of the profile's turn-taking."""

    def answer(
        self, audio: Audio, text: str, backlog_samples: int, speaking: bool = True
    ) -> Sequence[Message]:
        """One frame's answer: [samples] float32 at the protocol's rate."""

    def echo(self, mark: int) -> Sequence[Message]:
        """A mark was reached."""

    def farewell(self) -> Sequence[Message]:
        """Sent when the client has finished."""


class TurnsOfTheProfile:
    """Part of a ServerCodec whose protocol leaves turns to the model, and has one kind of client."""

    def connected(self, headers: Mapping[str, str]) -> None:
        """Ignore the headers of the client's websocket upgrade."""

    def speaks(self, drawn: bool) -> bool:
        """Return `drawn`."""
        return drawn
