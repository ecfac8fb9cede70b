"""Moshi's websocket: binary messages, the first byte is the kind.

    0 handshake (the server sends it when the session has its slot)    4 metadata, JSON
    1 audio, Ogg-Opus, 24 kHz mono, both ways                          5 error, UTF-8
    2 text, UTF-8                                                      6 ping
    3 control                                                          others are ignored

Source: rust/protocol.md and moshi/moshi/server.py of github.com/kyutai-labs/moshi. The Python server takes one
client at a time; the sockets of others open and get no handshake until it leaves. Its first frame is not
answered, and the delays of codec and codebooks hold back a few more; an idle session measures how many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metronome_cli.core.types import Audio
from metronome_cli.protocols.interface import AnswerRule, ProtocolTraits, TurnsOfTheProfile
from metronome_cli.protocols.messages import (
    AudioOutput,
    AudioReceived,
    ClientMessage,
    InputFinished,
    Message,
    ProtocolError,
    Ready,
    ServerError,
    ServerMessage,
    SessionRejected,
    clipped,
)
from metronome_cli.protocols.ogg import OggWriter, OpusMeter
from metronome_cli.protocols.opus import OpusDecoder, OpusEncoder

TRAITS = ProtocolTraits("moshi", "/api/chat", 24_000, AnswerRule("counted", "promised"), learns=True)
HANDSHAKE, AUDIO, TEXT, CONTROL, METADATA, ERROR, PING = range(7)
_END = 3  # control byte: end of turn
_FULL = ("full", "capacity", "busy", "slot", "try again", "too many")


class MoshiClientCodec:
    """Client side of Moshi's protocol."""

    traits = TRAITS
    encode = None

    def __init__(self) -> None:
        self._encoder: OpusEncoder | None = None
        self._meter = OpusMeter()

    def wrap(self, headers: Sequence[bytes]) -> Callable[[Sequence[bytes]], Sequence[Message]]:
        """Return encoded packets as messages."""
        ogg = OggWriter(headers)
        return lambda packets: [bytes([AUDIO]) + ogg.pages(packets)]

    def opening(self) -> Sequence[Message]:
        return ()

    def started(self) -> Sequence[Message]:
        return ()

    def audio(self, samples: Audio) -> Sequence[Message]:
        self._encoder = self._encoder or OpusEncoder(TRAITS.sample_rate)
        pages = self._encoder.encode(samples)
        return [bytes([AUDIO]) + pages] if pages else ()

    def after(self) -> Sequence[Message]:
        return ()

    def closing(self) -> Sequence[Message]:
        return ()

    def leaving(self) -> Sequence[Message]:
        return ()

    def read(self, message: Message) -> Sequence[ServerMessage]:
        if isinstance(message, str):
            return [ProtocolError("a text message")]
        if not message:
            return ()
        kind, body = message[0], message[1:]
        if kind == AUDIO:
            seconds = self._meter.seconds(body)
            if seconds is None:
                return [ProtocolError("audio that is not Ogg-Opus")]
            return [AudioOutput(seconds, silent=self._meter.silent)] if seconds else ()
        if kind == HANDSHAKE:
            return [Ready()]
        if kind == TEXT:
            return [AudioOutput(0.0, body.decode("utf-8", "replace"))]
        if kind == ERROR:
            return [_complaint(clipped(body.decode("utf-8", "replace")))]
        return ()


def _complaint(why: str) -> ServerMessage:
    return SessionRejected(why) if any(word in why.lower() for word in _FULL) else ServerError(why)


class MoshiServerCodec(TurnsOfTheProfile):
    """Server side of Moshi's protocol."""

    traits = TRAITS

    def __init__(self) -> None:
        self._encoder = OpusEncoder(TRAITS.sample_rate)
        self._decoder = OpusDecoder(TRAITS.sample_rate)

    def greeting(self) -> Sequence[Message]:
        return [bytes([HANDSHAKE])]

    def refusal(self, why: str) -> Sequence[Message]:
        return [bytes([ERROR]) + why.encode()]

    def read(self, message: Message) -> Sequence[ClientMessage]:
        if isinstance(message, str):
            return [ProtocolError("a text message")]
        if not message:
            return ()
        if message[0] == AUDIO:
            samples = self._decoder.decode(message[1:])
            return (
                [ProtocolError("audio that is not Ogg-Opus")] if samples is None else [AudioReceived(samples)]
            )
        if message[:2] == bytes([CONTROL, _END]):
            return [InputFinished()]
        return ()

    def answer(
        self, audio: Audio, text: str, backlog_samples: int, speaking: bool = True
    ) -> Sequence[Message]:
        pages = self._encoder.encode(audio)
        messages = [bytes([AUDIO]) + pages] if pages else []
        return [*messages, bytes([TEXT]) + text.encode()] if text else messages

    def echo(self, mark: int) -> Sequence[Message]:
        return ()

    def farewell(self) -> Sequence[Message]:
        return ()
