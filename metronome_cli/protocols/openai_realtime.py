"""Client of the OpenAI Realtime protocol over a websocket: JSON events, audio as base64 PCM16 at 24 kHz.

    to the server      session.update; input_audio_buffer.append {audio}, .commit; response.create; session.close
    from the server    session.created, session.updated; input_audio_buffer.speech_started, speech_stopped;
                       response.created, response.output_audio.delta {delta}, response.done {response: {status}};
                       error {error: {code, message}}

Beta names of events are taken as well. Servers with this protocol: OpenAI's; vllm-omni and sglang-omni, which add
response.listen, response.speak and sglang.unit.done; and Unmute, which carries Ogg-Opus in the base64, waits for a
first session.update under the subprotocol `realtime`, and leaves further sockets without an answer.

Source: platform.openai.com/docs/guides/realtime and its API reference; vllm_omni/entrypoints of
github.com/vllm-project/vllm-omni; unmute/openai_realtime_api_events.py of github.com/kyutai-labs/unmute. The model
may be silent between answers, so no frame of input is owed an answer unless an idle call shows that each gets one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from metronome_cli.core.types import Audio
from metronome_cli.protocols.interface import AnswerRule, ProtocolTraits
from metronome_cli.protocols.json_audio import (
    APPEND,
    NO_EVENT,
    REJECTIONS,
    append,
    code_and_text,
    error_of,
    session_closed,
)
from metronome_cli.protocols.messages import (
    AudioOutput,
    Message,
    Named,
    ProtocolError,
    Ready,
    ResponseActive,
    ServerMessage,
    SessionRejected,
    TranscriptText,
    UnitAnswered,
    UserSpeech,
    clipped,
)
from metronome_cli.protocols.ogg import OggWriter, OpusMeter
from metronome_cli.protocols.opus import OpusEncoder
from metronome_cli.protocols.pcm import is_silence, pack, raw, size, unpack
from metronome_cli.protocols.turn_end import SpeechEnd, TurnEnd, turn_detection

TRAITS = ProtocolTraits(
    "realtime",
    "/v1/realtime",
    24_000,
    AnswerRule("playback", "none"),
    learns=True,
    subprotocols=("realtime",),
)
UNMUTE = replace(TRAITS, name="unmute")
_AUDIO = ("response.output_audio.delta", "response.audio.delta")
_TEXT = ("response.output_audio_transcript.delta", "response.audio_transcript.delta", "response.text.delta",
         "response.output_text.delta")  # fmt: skip
_USER_TEXT = "conversation.item.input_audio_transcription."
_FRONT = frozenset(
    {"buffering", "silence_or_noise", "continuation_limit"}
)  # listen events that the model did not decide
SILENT = frozenset({
    "session.updated", "conversation.created", "conversation.item.created", "conversation.item.added",
    "conversation.item.done", "response.output_item.added", "response.output_item.done",
    "response.content_part.added", "response.content_part.done", "response.output_audio.done", "response.audio.done",
    "response.output_audio_transcript.done", "response.audio_transcript.done", "response.output_text.done",
    "response.text.done", "input_audio_buffer.committed", "input_audio_buffer.cleared", "rate_limits.updated",
})  # fmt: skip
Bytes = tuple[int, int]  # bytes per sample, samples per second


class RealtimeClientCodec:
    """A session of a realtime server; `unmute` uses Opus. `turn_end`: who ends the user's turns."""

    def __init__(self, unmute: bool = False, turn_end: TurnEnd = "vad") -> None:
        self.traits = UNMUTE if unmute else TRAITS
        self._encoder = OpusEncoder(TRAITS.sample_rate) if unmute else None
        self._meter = OpusMeter() if unmute else None
        self._turn_end = turn_end
        self._speech_end = SpeechEnd(TRAITS.sample_rate) if turn_end == "commit" and not unmute else None
        self._format: Bytes = (2, TRAITS.sample_rate)
        self.encode = None if unmute or self._speech_end else append
        self.wrap = _wrap if unmute else None

    def opening(self) -> Sequence[Message]:
        return [pack("session.update", session=self._session())] if self._encoder else ()

    def started(self) -> Sequence[Message]:
        return () if self._encoder else [pack("session.update", session=self._session())]

    def _session(self) -> dict[str, object]:
        if self._encoder:
            return {"instructions": None, "voice": None, "allow_recording": False}
        pcm = {"format": {"type": "audio/pcm", "rate": TRAITS.sample_rate}}
        listening = {**pcm, "turn_detection": turn_detection(self._turn_end)}
        return {
            "type": "realtime",
            "output_modalities": ["audio"],
            "audio": {"input": listening, "output": pcm},
        }

    def audio(self, samples: Audio) -> Sequence[Message]:
        if self._encoder is not None:
            pages = self._encoder.encode(samples)
            return [_pages(pages)] if pages else ()
        if self._speech_end is not None and self._speech_end.ended(samples):
            return [append(samples), pack("input_audio_buffer.commit"), pack("response.create")]
        return [append(samples)]

    def after(self) -> Sequence[Message]:
        return ()

    def closing(self) -> Sequence[Message]:
        return ()

    def leaving(self) -> Sequence[Message]:
        return () if self._encoder else [pack("session.close")]

    def read(self, message: Message) -> Sequence[ServerMessage]:
        data = unpack(message)
        if data is None:
            return [NO_EVENT]
        kind = data["type"]
        if kind in _AUDIO:
            return self._audio(data)
        if kind in _TEXT:
            return [AudioOutput(0.0, clipped(data.get("delta", "")))]
        if kind in ("session.created", "session.updated"):
            self._format = output_format(data.get("session"), self._format)
        if kind == "session.created" or (kind == "session.updated" and self._encoder is not None):
            return [Ready()]
        if kind in SILENT:
            return ()
        return read_event(kind, data)

    def _audio(self, data: dict[str, Any]) -> Sequence[ServerMessage]:
        if self._meter is None:  # only its length counts
            width, rate = self._format
            delta = data.get("delta")
            length = size(delta)
            if length is None or length % width:
                return [ProtocolError(f"an audio delta that is not {'audio' if length else 'base64'}")]
            seconds = length / width / (rate_of(data) or rate)
            return [AudioOutput(seconds, silent=is_silence(str(delta)))] if length else ()
        sound = raw(data.get("delta"))
        if sound is None:
            return [ProtocolError("an audio delta that is not base64")]
        heard = self._meter.seconds(sound)
        if heard is None:
            return [ProtocolError("an audio delta that is not audio")]
        return [AudioOutput(heard, silent=self._meter.silent)] if heard else ()


def read_event(kind: str, data: dict[str, Any]) -> Sequence[ServerMessage]:
    """Events that mean the same to every client of this family of protocols."""
    if kind == "response.created":
        return [ResponseActive(True)]
    if kind == "response.done":
        return _response_done(data.get("response"))
    if kind in ("response.listen", "response.speak", "sglang.unit.done"):
        return _unit(kind, data)
    if kind in ("input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"):
        return [UserSpeech(kind.endswith("started"))]
    if kind.startswith(_USER_TEXT):
        return _user_text(kind.removeprefix(_USER_TEXT), data)
    if kind in ("session.closed", "session.expired", "session.replaced"):
        return [session_closed(data)]
    return [error_of(data)] if kind == "error" else [Named(clipped(kind, 60))]


def _response_done(response: object) -> Sequence[ServerMessage]:
    fields = response if isinstance(response, dict) else {}
    status = str(fields.get("status") or "completed")
    if status not in ("failed", "incomplete", "cancelled"):
        return [ResponseActive(False)]
    details = fields.get("status_details")
    details = details if isinstance(details, dict) else {}
    code, text = code_and_text(details) if details.get("error") else (str(details.get("reason") or ""), "")
    why = clipped(text or code)
    ended: list[ServerMessage] = [ResponseActive(False, status, why)]
    return [*ended, SessionRejected(why)] if status == "failed" and code in REJECTIONS else ended


def _unit(kind: str, data: dict[str, Any]) -> Sequence[ServerMessage]:
    """An answer to one unit of input; listening that only the front decided is none."""
    response = data.get("response")
    metadata = response.get("metadata") if isinstance(response, dict) else None
    by_front = isinstance(metadata, dict) and metadata.get("model_listen") is False
    if by_front or data.get("reason") in _FRONT or data.get("buffering") is True:
        return [Named(f"{kind} (front)")]
    unit = data.get("unit_id")
    return [
        UnitAnswered(
            kind == "response.listen", unit if isinstance(unit, int | str) else None, context_tokens(data)
        )
    ]


def context_tokens(data: dict[str, Any]) -> int | None:
    """Return the length of the session's KV cache, if the server reports it."""
    length = data.get("kv_cache_length")
    return length if isinstance(length, int) and 0 <= length < 1 << 40 else None


def _user_text(kind: str, data: dict[str, Any]) -> Sequence[ServerMessage]:
    if kind == "failed":
        return [ResponseActive(False, "failed", code_and_text(data)[1])]
    text = data.get("transcript") or data.get("delta") or data.get("text") or ""
    return [TranscriptText(clipped(text, 2000), final=kind in ("completed", "segment"))]


def output_format(session: object, known: Bytes) -> Bytes:
    """Bytes per sample and sample rate of the output, from GA's or the beta's session object."""
    if not isinstance(session, dict):
        return known
    if isinstance(beta := session.get("output_audio_format"), str):
        return (1, 8000) if beta.startswith("g711") else (2, TRAITS.sample_rate)
    try:
        given = session["audio"]["output"]["format"]
        if given["type"] != "audio/pcm":
            return 1, 8000
        return 2, rate_of({"sample_rate_hz": given["rate"]}) or known[1]
    except (KeyError, TypeError):
        return known


def rate_of(data: dict[str, Any]) -> int | None:
    """A sample rate that a delta carries."""
    rate = data.get("sample_rate_hz")
    return rate if isinstance(rate, int) and 1000 <= rate <= 384_000 else None


def _pages(pages: bytes) -> Message:
    return pack(APPEND, audio=base64.b64encode(pages).decode("ascii"))


def _wrap(headers: Sequence[bytes]) -> Callable[[Sequence[bytes]], Sequence[Message]]:
    ogg = OggWriter(headers)
    return lambda packets: [_pages(ogg.pages(packets))]
