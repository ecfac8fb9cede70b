"""moshi-server's speech-to-text websocket: msgpack maps, each with a `type`.

    to the server      Init; Audio {pcm: [float]}, 24 kHz mono; Marker {id}
    from the server    Ready; Step {step_idx, prs, buffered_pcm}, one for each 80 ms of input; Word {text,
                       start_time}; EndWord; Marker {id}, when its place in the audio was reached;
                       Error {message}

Source: rust/moshi-server/src/asr.rs and batched_asr.rs of github.com/kyutai-labs/moshi. `buffered_pcm` is the
server's backlog in samples. A full server says "no free channels" and closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np

from metronome_cli.core.types import Audio
from metronome_cli.protocols.interface import AnswerRule, ProtocolTraits, TurnsOfTheProfile
from metronome_cli.protocols.messages import (
    AudioOutput,
    AudioReceived,
    BacklogReported,
    ClientMessage,
    MarkReached,
    MarkReceived,
    Message,
    ProtocolError,
    Ready,
    ServerError,
    ServerMessage,
    SessionRejected,
    clipped,
)

TRAITS = ProtocolTraits(
    "moshi-server",
    "/api/asr-streaming",
    24_000,
    AnswerRule("counted", "promised"),
    learns=True,
    key_header="kyutai-api-key",
    key_prefix="",
)
STEP_S = 0.080
MARK_EVERY = 25  # pieces of audio between two marks
FULL = "no free channels"


class MoshiRustClientCodec:
    """Client side of moshi-server's protocol."""

    traits = TRAITS
    wrap = None

    def __init__(self) -> None:
        self._pieces = 0

    def opening(self) -> Sequence[Message]:
        return ()

    def started(self) -> Sequence[Message]:
        return ()

    @staticmethod
    def encode(samples: Audio) -> Message:
        return pack(type="Audio", pcm=samples.tolist())

    def audio(self, samples: Audio) -> Sequence[Message]:
        return [self.encode(samples), *self.after()]

    def after(self) -> Sequence[Message]:
        self._pieces += 1
        return () if self._pieces % MARK_EVERY else [pack(type="Marker", id=self._pieces)]

    def closing(self) -> Sequence[Message]:
        return ()

    def leaving(self) -> Sequence[Message]:
        return ()

    def read(self, message: Message) -> Sequence[ServerMessage]:
        data = unpack(message)
        if data is None:
            return [ProtocolError("not a msgpack map with a type")]
        kind = data["type"]
        if kind == "Step":
            return _step(data)
        if kind == "Marker":
            mark = data.get("id")
            return (
                [MarkReached(mark)] if isinstance(mark, int) else [ProtocolError("a Marker without its id")]
            )
        if kind == "Word":
            return [AudioOutput(0.0, clipped(data.get("text", "")))]
        if kind == "Ready":
            return [Ready()]
        if kind == "Error":
            why = clipped(data.get("message", "no message"))
            return [SessionRejected(why) if FULL in why else ServerError(why)]
        return ()


def _step(data: dict[str, Any]) -> Sequence[ServerMessage]:
    buffered = data.get("buffered_pcm", 0)
    if not isinstance(buffered, int | float) or not 0 <= buffered < 1e12:
        return [ProtocolError("a Step whose buffered_pcm is not a number of samples")]
    return [AudioOutput(STEP_S), BacklogReported(buffered / TRAITS.sample_rate)]


class MoshiRustServerCodec(TurnsOfTheProfile):
    """Server side of moshi-server's protocol."""

    traits = TRAITS

    def __init__(self) -> None:
        self._steps = 0

    def greeting(self) -> Sequence[Message]:
        return [pack(type="Ready")]

    def refusal(self, why: str) -> Sequence[Message]:
        return [pack(type="Error", message=f"{FULL}: {why}")]

    def read(self, message: Message) -> Sequence[ClientMessage]:
        data = unpack(message)
        if data is None:
            return [ProtocolError("not a msgpack map with a type")]
        if data["type"] == "Marker":
            mark = data.get("id")
            return (
                [MarkReceived(mark)] if isinstance(mark, int) else [ProtocolError("a Marker without its id")]
            )
        if data["type"] != "Audio":
            return ()
        try:
            samples = np.asarray(data.get("pcm"), dtype=np.float32)
        except (TypeError, ValueError, OverflowError):
            return [ProtocolError("an Audio whose pcm is not a list of numbers")]
        if samples.ndim != 1:
            return [ProtocolError("an Audio without its pcm")]
        if not np.isfinite(samples).all():
            return [ProtocolError("an Audio whose pcm has values that are not finite")]
        return [AudioReceived(samples)]

    def answer(
        self, audio: Audio, text: str, backlog_samples: int, speaking: bool = True
    ) -> Sequence[Message]:
        self._steps += 1
        step = pack(type="Step", step_idx=self._steps, prs=[0.0, 0.0, 0.0, 0.0], buffered_pcm=backlog_samples)
        word = [pack(type="Word", text=text, start_time=self._steps * STEP_S)] if text else []
        return [step, *word]

    def echo(self, mark: int) -> Sequence[Message]:
        return [pack(type="Marker", id=mark)]

    def farewell(self) -> Sequence[Message]:
        return ()


def pack(**fields: object) -> bytes:
    """Encode a message, floats as 32 bits, as the server reads them."""
    packed: bytes = msgpack.packb(fields, use_single_float=True)
    return packed


def unpack(message: Message) -> dict[str, Any] | None:
    """Decode a map with a `type`; None for anything else."""
    if isinstance(message, str):
        return None
    try:
        data = msgpack.unpackb(message)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None
    return data if isinstance(data, dict) and isinstance(data.get("type"), str) else None
