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
from typing import Any

from metronome_cli.engine.types import Audio
from metronome_cli.targets.protocols.base import Traits
from metronome_cli.targets.protocols.events import (
    Event,
    Failed,
    Finished,
    Garbage,
    Heard,
    Message,
    Output,
    Ready,
    Refused,
    Turn,
    Wish,
    clipped,
)
from metronome_cli.targets.protocols.pcm import pack, raw, samples_of, to_text, unpack

TRAITS = Traits("vllm-realtime", "/v1/realtime", 16_000, steady=False)
_REFUSALS = ("resource_exhausted", "rate_limit_exceeded", "too_many_sessions")


class VllmRealtimeClient:
    """A caller of vLLM's transcription endpoint. `model`: the served model's name."""

    traits = TRAITS

    def __init__(self, model: str | None = None) -> None:
        self._model = model
        self._began = False

    def opening(self) -> Sequence[Message]:
        return ()

    def started(self) -> Sequence[Message]:
        named = {"model": self._model} if self._model else {}
        return [pack("session.update", **named), pack("input_audio_buffer.commit", final=False)]

    @staticmethod
    def encode(samples: Audio) -> Message:
        return pack("input_audio_buffer.append", audio=to_text(samples))

    def audio(self, samples: Audio) -> Sequence[Message]:
        return [self.encode(samples)]

    def after(self) -> Sequence[Message]:
        return ()

    def closing(self) -> Sequence[Message]:
        return [pack("input_audio_buffer.commit", final=True)]

    def read(self, message: Message) -> Sequence[Event]:
        data = unpack(message)
        if data is None:
            return [Garbage("not a JSON object with a type")]
        kind = data["type"]
        if kind == "transcription.delta":
            output = Output(0.0, clipped(data.get("delta", "")))
            began, self._began = self._began, True
            return [output] if began else [Turn(True), output]
        if kind == "transcription.done":
            return [Output(0.0), Turn(False)]
        if kind == "session.created":
            return [Ready()]
        return [_complaint(data)] if kind == "error" else ()


def _complaint(data: dict[str, Any]) -> Event:
    error = data.get("error")
    fields = error if isinstance(error, dict) else {"message": error, "code": data.get("code")}
    code = clipped(fields.get("code") or "error", 60)
    why = clipped(f"{code}: {fields.get('message') or 'no message'}")
    return Refused(why) if code in _REFUSALS else Failed(why)


class VllmRealtimeHost:
    """A server with this protocol: a piece of text for each frame."""

    traits = TRAITS

    def greeting(self) -> Sequence[Message]:
        return [pack("session.created", id="sess-reference")]

    def refusal(self, why: str) -> Sequence[Message]:
        return [pack("error", error=why, code="resource_exhausted")]

    def read(self, message: Message) -> Sequence[Wish]:
        data = unpack(message)
        if data is None:
            return [Garbage("not a JSON object with a type")]
        if data["type"] == "input_audio_buffer.append":
            sound = raw(data.get("audio"))
            samples = None if sound is None else samples_of(sound)
            return [Garbage("audio that is not base64 PCM16")] if samples is None else [Heard(samples)]
        final = data["type"] == "input_audio_buffer.commit" and data.get("final") is True
        return [Finished()] if final else ()

    def answer(self, audio: Audio, text: str, backlog_samples: int) -> Sequence[Message]:
        return [pack("transcription.delta", delta=text)]

    def echo(self, mark: int) -> Sequence[Message]:
        return ()

    def farewell(self) -> Sequence[Message]:
        return [pack("transcription.done", text="", usage={})]
