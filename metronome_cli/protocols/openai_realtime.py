"""The OpenAI Realtime protocol over a websocket: JSON events, audio as base64 PCM16 at 24 kHz.

    to the server      session.update; input_audio_buffer.append {audio}, .commit, .clear; response.create
    from the server    session.created, session.updated; response.created, response.output_audio.delta {delta},
                       response.output_audio_transcript.delta, response.done; error {error: {code, message}}

The beta name of the audio event, response.audio.delta, is taken as well. Servers with this protocol:
vllm-omni (refuses with code `resource_exhausted`), sglang-omni, and Unmute, which carries Ogg-Opus in the base64,
waits for a first session.update under the subprotocol `realtime`, and lets surplus sockets hang.

Source: platform.openai.com/docs/guides/realtime; unmute/openai_realtime_api_events.py of
github.com/kyutai-labs/unmute. The model may be silent between responses, so only while one is in progress is a
frame owed an answer.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from metronome_cli.core.types import Audio
from metronome_cli.protocols.interface import ProtocolTraits
from metronome_cli.protocols.json_audio import APPEND, NO_EVENT, append, appended, complaint
from metronome_cli.protocols.messages import (
    AudioOutput,
    ClientMessage,
    InputFinished,
    Message,
    ProtocolError,
    Ready,
    ResponseActive,
    ServerMessage,
    clipped,
)
from metronome_cli.protocols.ogg import OggWriter, OpusMeter
from metronome_cli.protocols.opus import OpusEncoder
from metronome_cli.protocols.pcm import pack, raw, size, to_text, unpack

TRAITS = ProtocolTraits("realtime", "/v1/realtime", 24_000, steady=False, subprotocols=("realtime",))
UNMUTE = replace(TRAITS, name="unmute")
_AUDIO = ("response.output_audio.delta", "response.audio.delta")
_TEXT = ("response.output_audio_transcript.delta", "response.audio_transcript.delta", "response.text.delta",
         "response.output_text.delta")  # fmt: skip


class RealtimeClientCodec:
    """A caller of a realtime server; `unmute` speaks Opus."""

    def __init__(self, unmute: bool = False) -> None:
        self.traits = UNMUTE if unmute else TRAITS
        self._encoder = OpusEncoder(TRAITS.sample_rate) if unmute else None
        self._meter = OpusMeter() if unmute else None
        self.encode = None if unmute else append
        self.wrap = _wrap if unmute else None

    def opening(self) -> Sequence[Message]:
        return [pack("session.update", session=self._session())] if self._encoder else ()

    def started(self) -> Sequence[Message]:
        return () if self._encoder else [pack("session.update", session=self._session())]

    def _session(self) -> dict[str, object]:
        if self._encoder:
            return {"instructions": None, "voice": None, "allow_recording": False}
        pcm = {"format": {"type": "audio/pcm", "rate": TRAITS.sample_rate}}
        listening = {**pcm, "turn_detection": {"type": "server_vad"}}
        return {
            "type": "realtime",
            "output_modalities": ["audio"],
            "audio": {"input": listening, "output": pcm},
        }

    def audio(self, samples: Audio) -> Sequence[Message]:
        if self._encoder is None:
            return [append(samples)]
        pages = self._encoder.encode(samples)
        return [_pages(pages)] if pages else ()

    def after(self) -> Sequence[Message]:
        return ()

    def closing(self) -> Sequence[Message]:
        return ()

    def read(self, message: Message) -> Sequence[ServerMessage]:
        data = unpack(message)
        if data is None:
            return [NO_EVENT]
        kind = data["type"]
        if kind in _AUDIO:
            return self._audio(data)
        if kind in _TEXT:
            return [AudioOutput(0.0, clipped(data.get("delta", "")))]
        if kind == "session.created" or (kind == "session.updated" and self._encoder is not None):
            return [Ready()]
        if kind == "response.created":
            return [ResponseActive(True)]
        if kind == "response.done":
            return [ResponseActive(False)]
        return [complaint(data)] if kind == "error" else ()

    def _audio(self, data: dict[str, Any]) -> Sequence[ServerMessage]:
        if self._meter is None:  # its length is all that counts
            length = size(data.get("delta"))
            if length is None:
                return [ProtocolError("an audio delta that is not base64")]
            if length % 2:
                return [ProtocolError("an audio delta that is not audio")]
            return [AudioOutput(length / 2 / TRAITS.sample_rate)]
        sound = raw(data.get("delta"))
        if sound is None:
            return [ProtocolError("an audio delta that is not base64")]
        seconds = self._meter.seconds(sound)
        return [
            ProtocolError("an audio delta that is not audio") if seconds is None else AudioOutput(seconds)
        ]


def _pages(pages: bytes) -> Message:
    return pack(APPEND, audio=base64.b64encode(pages).decode("ascii"))


def _wrap(headers: Sequence[bytes]) -> Callable[[Sequence[bytes]], Sequence[Message]]:
    ogg = OggWriter(headers)
    return lambda packets: [_pages(ogg.pages(packets))]


class RealtimeServerCodec:
    """A server with this protocol that answers frame by frame, one response for the whole session."""

    traits = TRAITS

    def __init__(self) -> None:
        self._answering = False

    def greeting(self) -> Sequence[Message]:
        return [pack("session.created", session={"type": "realtime", "object": "realtime.session"})]

    def refusal(self, why: str) -> Sequence[Message]:
        return [pack("error", error={"type": "server_error", "code": "resource_exhausted", "message": why})]

    def read(self, message: Message) -> Sequence[ClientMessage]:
        data = unpack(message)
        if data is None:
            return [NO_EVENT]
        if data["type"] == APPEND:
            return [appended(data)]
        return [InputFinished()] if data["type"] == "response.cancel" else ()

    def answer(self, audio: Audio, text: str, backlog_samples: int) -> Sequence[Message]:
        begin = () if self._answering else (pack("response.created", response={"status": "in_progress"}),)
        self._answering = True
        said = (pack("response.output_audio_transcript.delta", delta=text),) if text else ()
        return [*begin, pack("response.output_audio.delta", delta=to_text(audio)), *said]

    def echo(self, mark: int) -> Sequence[Message]:
        return ()

    def farewell(self) -> Sequence[Message]:
        return [pack("response.done", response={"status": "completed"})]
