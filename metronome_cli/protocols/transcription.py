"""Transcription over the OpenAI Realtime protocol, as OpenAI, Dynamo and SGLang serve it: words of the user's speech.

    to the server      session.update {session: {type: transcription}}; input_audio_buffer.append {audio}, .commit
    from the server    session.created, session.updated; conversation.item.input_audio_transcription.delta {delta},
                       .completed {transcript}, .segment {text}, .failed {error}; sglang-omni also sends
                       transcription.segment {text, is_final} and transcription.completed

Audio is base64 PCM16 at 24 kHz. Source: platform.openai.com/docs/guides/realtime-transcription; sglang_omni of
github.com/sgl-project/sglang-omni. Nothing is known between utterances, so no frame of input is owed an answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from metronome_cli.core.types import Audio
from metronome_cli.protocols.interface import AnswerRule, TurnsOfTheProfile
from metronome_cli.protocols.json_audio import APPEND, NO_EVENT, append, appended
from metronome_cli.protocols.messages import (
    Answered,
    ClientMessage,
    InputFinished,
    Leaving,
    Message,
    ProtocolError,
    Ready,
    ServerMessage,
    TranscriptText,
    clipped,
)
from metronome_cli.protocols.openai_realtime import SILENT, read_event
from metronome_cli.protocols.openai_realtime import TRAITS as REALTIME
from metronome_cli.protocols.pcm import pack, unpack
from metronome_cli.protocols.turn_end import TurnEnd, turn_detection

TRAITS = replace(
    REALTIME,
    name="transcription",
    path="/v1/realtime?intent=transcription",
    answers=AnswerRule("bursts", "none"),
    learns=False,
)
_READY = ("session.created", "transcription_session.created")


class TranscriptionClientCodec:
    """A session of a transcription server. `turn_end` commit: the client ends the audio, once."""

    traits = TRAITS
    wrap = None

    def __init__(self, model: str | None = None, turn_end: TurnEnd = "commit") -> None:
        self._model = model
        self._turn_end = turn_end
        self._ready = False

    def opening(self) -> Sequence[Message]:
        return ()

    def started(self) -> Sequence[Message]:
        named = {"transcription": {"model": self._model}} if self._model else {}
        listening = {
            "format": {"type": "audio/pcm", "rate": TRAITS.sample_rate},
            "turn_detection": turn_detection(self._turn_end),
            **named,
        }
        return [pack("session.update", session={"type": "transcription", "audio": {"input": listening}})]

    @staticmethod
    def encode(samples: Audio) -> Message:
        return append(samples)

    def audio(self, samples: Audio) -> Sequence[Message]:
        return [append(samples)]

    def after(self) -> Sequence[Message]:
        return ()

    def closing(self) -> Sequence[Message]:
        return [pack("input_audio_buffer.commit")] if self._turn_end == "commit" else ()

    def leaving(self) -> Sequence[Message]:
        return [pack("session.close")]

    def read(self, message: Message) -> Sequence[ServerMessage]:
        data = unpack(message)
        if data is None:
            return [NO_EVENT]
        kind = data["type"]
        if kind in _READY:
            again, self._ready = self._ready, True
            return () if again else [Ready()]
        if kind == "transcription.segment":
            return [
                TranscriptText(clipped(data.get("text") or "", 2000), final=data.get("is_final") is not False)
            ]
        if kind in ("transcription.completed", "transcription.delta"):
            text = clipped(data.get("text") or data.get("delta") or "", 2000)
            return [TranscriptText(text, final=kind.endswith("completed"))]
        if kind in SILENT or kind == "transcription_session.updated":
            return ()
        return read_event(kind, data)


class TranscriptionServerCodec(TurnsOfTheProfile):
    """A server with this protocol: a piece of text for each frame, the whole when the client commits."""

    traits = TRAITS

    def __init__(self) -> None:
        self._item = 1
        self._events = itertools.count(1)
        self._words: list[str] = []

    def greeting(self) -> Sequence[Message]:
        return [self._event("session.created", session=_session())]

    def refusal(self, why: str) -> Sequence[Message]:
        error = {"type": "server_error", "code": "resource_exhausted", "message": why, "param": None}
        return [self._event("error", error=error)]

    def read(self, message: Message) -> Sequence[ClientMessage]:
        data = unpack(message)
        kind = "" if data is None else data["type"]
        if data is None:
            return [self._complaint("invalid_json", "not a JSON object with a type")]
        if kind == APPEND:
            heard = appended(data)
            return [
                self._complaint("invalid_value", heard.what) if isinstance(heard, ProtocolError) else heard
            ]
        if kind == "session.update":
            return [Answered((self._event("session.updated", session=_session()),))]
        if kind == "input_audio_buffer.commit":
            return [InputFinished()]
        if kind == "session.close":
            return [Leaving()]
        return [self._complaint("unknown_event", f"{clipped(kind, 60)} is not known")]

    def answer(
        self, audio: Audio, text: str, backlog_samples: int, speaking: bool = True
    ) -> Sequence[Message]:
        if not text:
            return ()
        self._words.append(text)
        return [self._transcript("delta", delta=f" {text}", content_index=0)]

    def echo(self, mark: int) -> Sequence[Message]:
        return ()

    def farewell(self) -> Sequence[Message]:
        item = f"item_{self._item}"
        committed = self._event("input_audio_buffer.committed", item_id=item, previous_item_id=None)
        whole, self._words = " ".join(self._words), []
        usage = {"type": "duration", "seconds": 0.0}
        done = self._transcript("completed", transcript=whole, content_index=0, usage=usage)
        self._item += 1
        return [committed, done]

    def _transcript(self, kind: str, **fields: object) -> Message:
        name = f"conversation.item.input_audio_transcription.{kind}"
        return self._event(name, item_id=f"item_{self._item}", **fields)

    def _event(self, kind: str, **fields: object) -> Message:
        return pack(kind, event_id=f"event_{next(self._events)}", **fields)

    def _complaint(self, code: str, why: str) -> Answered:
        error = {"type": "invalid_request_error", "code": code, "message": why, "param": None}
        return Answered((self._event("error", error=error),))


def _session() -> dict[str, object]:
    pcm = {"type": "audio/pcm", "rate": TRAITS.sample_rate}
    return {
        "type": "transcription",
        "object": "realtime.transcription_session",
        "id": "sess_reference",
        "audio": {"input": {"format": pcm}},
    }
