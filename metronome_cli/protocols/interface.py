"""Both sides of a protocol, as small codecs without a socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from metronome_cli.core.types import Audio
from metronome_cli.protocols.messages import ClientMessage, Message, ServerMessage


@dataclass(frozen=True, slots=True)
class ProtocolTraits:
    """What holds for every session of a protocol.

    `steady`: every frame of input gets output of its own, so output can be counted against input; at the start
    `lag_frames` of them may get none. `key_header`: the header that carries a key, `key_prefix` before it.
    """

    name: str
    path: str
    sample_rate: int
    steady: bool
    lag_frames: int = 0
    subprotocols: tuple[str, ...] = ()
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "


class ClientCodec(Protocol):
    """The caller's side. One object a session."""

    traits: ProtocolTraits

    @property
    def encode(self) -> Callable[[Audio], Message] | None:
        """The message of a piece of audio, where it depends on nothing else: `audio` is then this, and what comes
        `after`. None where the codec keeps an encoder.
        """

    @property
    def wrap(self) -> Callable[[Sequence[bytes]], Callable[[Sequence[bytes]], Sequence[Message]]] | None:
        """For audio that is ready in Opus: from the two header packets, what makes messages of a piece's packets.
        None where the protocol does not carry Opus.
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

    def read(self, message: Message) -> Sequence[ServerMessage]:
        """What a message means. Never raises."""


class ServerCodec(Protocol):
    """The server's side. One object a session."""

    traits: ProtocolTraits

    def greeting(self) -> Sequence[Message]:
        """Sent when the session has its seat."""

    def refusal(self, why: str) -> Sequence[Message]:
        """Sent when there is none; the socket is closed after it."""

    def read(self, message: Message) -> Sequence[ClientMessage]:
        """What a client wants. Never raises."""

    def answer(self, audio: Audio, text: str, backlog_samples: int) -> Sequence[Message]:
        """One frame's answer: [samples] float32 at the protocol's rate."""

    def echo(self, mark: int) -> Sequence[Message]:
        """A mark was reached."""

    def farewell(self) -> Sequence[Message]:
        """Sent when the client has finished."""
