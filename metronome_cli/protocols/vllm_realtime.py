"""vLLM's `/v1/realtime`: transcription only, JSON events, audio as base64 PCM16 at 16 kHz.

    to the server      session.update {model}; input_audio_buffer.commit {final: false}, which starts it;
                       input_audio_buffer.append {audio}; input_audio_buffer.commit {final: true}
    from the server    session.created; transcription.delta {delta}; transcription.done {text, usage};
                       error {error, code}

Source: vllm/entrypoints/openai/realtime of github.com/vllm-project/vllm. From the first delta on, frames are owed
an answer until the transcription is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from metronome_cli.core.types import Audio
from metronome_cli.protocols.interface import AnswerRule, ProtocolTraits, TurnsOfTheProfile
from metronome_cli.protocols.json_audio import APPEND, NO_EVENT, append, appended, error_of
from metronome_cli.protocols.messages import (
    AudioOutput,
    ClientMessage,
    InputFinished,
    Message,
    Named,
    Ready,
    ResponseActive,
    ServerMessage,
    UnitAnswered,
    clipped,
)
from metronome_cli.protocols.pcm import pack, unpack

TRAITS = ProtocolTraits("vllm-realtime", "/v1/realtime", 16_000, AnswerRule("bursts", "none"), learns=True)


class VllmRealtimeClientCodec:
    """Client side of vLLM's transcription endpoint. `model`: the served model's name."""

    traits = TRAITS
    wrap = None

    def __init__(self, model: str | None = None) -> None:
        self._model = model

    def opening(self) -> Sequence[Message]:
        return ()

    def started(self) -> Sequence[Message]:
        named = {"model": self._model} if self._model else {}
        return [pack("session.update", **named), pack("input_audio_buffer.commit", final=False)]

    @staticmethod
    def encode(samples: Audio) -> Message:
        return append(samples)

    def audio(self, samples: Audio) -> Sequence[Message]:
        return [self.encode(samples)]

    def after(self) -> Sequence[Message]:
        return ()

    def closing(self) -> Sequence[Message]:
        return [pack("input_audio_buffer.commit", final=True)]

    def leaving(self) -> Sequence[Message]:
        return ()

    def read(self, message: Message) -> Sequence[ServerMessage]:
        data = unpack(message)
        if data is None:
            return [NO_EVENT]
        kind = data["type"]
        if kind == "transcription.delta":
            return [UnitAnswered(False), AudioOutput(0.0, clipped(data.get("delta", "")))]
        if kind == "transcription.done":
            return [AudioOutput(0.0), ResponseActive(False)]
        if kind == "session.created":
            return [Ready()]
        if kind == "session.updated":
            return ()
        return [error_of(data)] if kind == "error" else [Named(clipped(kind, 60))]


class VllmRealtimeServerCodec(TurnsOfTheProfile):
    """Server side of the protocol, which sends a piece of text for each frame."""

    traits = TRAITS

    def greeting(self) -> Sequence[Message]:
        return [pack("session.created", id="sess-reference")]

    def refusal(self, why: str) -> Sequence[Message]:
        return [pack("error", error=why, code="resource_exhausted")]

    def read(self, message: Message) -> Sequence[ClientMessage]:
        data = unpack(message)
        if data is None:
            return [NO_EVENT]
        if data["type"] == APPEND:
            return [appended(data)]
        final = data["type"] == "input_audio_buffer.commit" and data.get("final") is True
        return [InputFinished()] if final else ()

    def answer(
        self, audio: Audio, text: str, backlog_samples: int, speaking: bool = True
    ) -> Sequence[Message]:
        return [pack("transcription.delta", delta=text)]

    def echo(self, mark: int) -> Sequence[Message]:
        return ()

    def farewell(self) -> Sequence[Message]:
        return [pack("transcription.done", text="", usage={})]
