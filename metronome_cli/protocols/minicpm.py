"""MiniCPM-o's own websocket (MiniCPM-o-Demo, `/v1/realtime?mode=audio`): units of one second, listening or speaking.

    to the server      session.update (v2) or session.init (v3), once the queue is done; input_audio_buffer.append
                       {audio}: base64 of float32 at 16 kHz, a whole unit; session.close
    from the server    session.queued, session.queue_update {position, estimated_wait_s}; session.queue_done;
                       session.created; then one answer per unit: response.listen, or response.output_audio.delta
                       {text, audio, end_of_turn}, both with kv_cache_length; session.go_away; session.closed {reason}
    version 3          response.output.delta {kind: listen | text | audio}, response.spoken.delta, .end,
                       response.unit.committed; answers of one unit share input_id or unit_index

Output is float32 at 24 kHz unless `sample_rate` says otherwise. Source: the realtime gateway of
github.com/OpenBMB/MiniCPM-o-Demo. A server may drop input silently; answers without numbers are matched in order.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from metronome_cli.core.types import Audio
from metronome_cli.protocols.interface import AnswerRule, ProtocolTraits, TurnsOfTheProfile
from metronome_cli.protocols.json_audio import APPEND, NO_EVENT, error_of, session_closed
from metronome_cli.protocols.messages import (
    Answered,
    AudioOutput,
    AudioReceived,
    ClientMessage,
    InputFinished,
    Leaving,
    Message,
    Named,
    ProtocolError,
    Queued,
    Ready,
    Reply,
    ResponseActive,
    ServerError,
    ServerMessage,
    UnitAnswered,
    clipped,
)
from metronome_cli.protocols.openai_realtime import context_tokens, rate_of
from metronome_cli.protocols.pcm import is_silence, pack, raw, size, unpack

UNIT_S = 1.0
OUTPUT_RATE = 24_000
TRAITS = ProtocolTraits(
    "minicpm", "/v1/realtime?mode=audio", 16_000, AnswerRule("units", "promised"), unit_s=UNIT_S
)
_INSTRUCTIONS = {"instructions": "You are a helpful assistant."}
_V3_AUDIO = ("response.output.delta", "response.spoken.delta")
_SILENT = ("session.updated", "session.go_away", "response.spoken.start", "response.created", "response.done")


class MiniCpmClientCodec:
    """A session of MiniCPM-o-Demo: version 2, or 3 if the server rejects that."""

    traits = TRAITS
    encode = None
    wrap = None

    def __init__(self) -> None:
        self._ready = False
        self._tried_v3 = False
        self._unit: list[Audio] = []
        self._samples = 0
        self._speaking = False

    def opening(self) -> Sequence[Message]:
        return ()

    def started(self) -> Sequence[Message]:
        return ()

    def audio(self, samples: Audio) -> Sequence[Message]:
        """A message once a whole unit has come."""
        self._unit.append(samples)
        self._samples += len(samples)
        if self._samples < round(UNIT_S * TRAITS.sample_rate):
            return ()
        unit, self._unit, self._samples = np.concatenate(self._unit), [], 0
        return [pack(APPEND, audio=floats_to_text(unit))]

    def after(self) -> Sequence[Message]:
        return ()

    def closing(self) -> Sequence[Message]:
        return ()

    def leaving(self) -> Sequence[Message]:
        return [pack("session.close")]

    def read(self, message: Message) -> Sequence[ServerMessage]:
        data = unpack(message)
        if data is None:
            return [NO_EVENT]
        kind = data["type"]
        if not self._ready:
            return self._before_ready(kind, data)
        if kind == "response.listen":
            return self._listens(data)
        if kind == "response.output_audio.delta":
            return self._speaks(data, data.get("audio"), ends=data.get("end_of_turn") is True)
        if kind in _V3_AUDIO:
            listens = data.get("kind") == "listen"
            return (
                self._listens(data) if listens else self._speaks(data, data.get("audio") or data.get("delta"))
            )
        if kind == "response.spoken.end":
            return self._answer(speaking=False)
        if kind == "response.unit.committed":
            return [_unit(data, listening=not self._speaking)]
        return _session_event(kind, data)

    def _before_ready(self, kind: str, data: dict[str, Any]) -> Sequence[ServerMessage]:
        if kind in ("session.queued", "session.queue_update"):
            return [Queued(_natural(data.get("position")), _seconds(data.get("estimated_wait_s")))]
        if kind == "session.queue_done":
            return [Reply((pack("session.update", session=_INSTRUCTIONS),))]
        if kind == "session.created":
            self._ready = True
            return [Ready()]
        if kind == "error":
            error = error_of(data)
            if isinstance(error, ServerError) and not self._tried_v3:
                self._tried_v3 = True
                return [Reply((pack("session.init", payload=_INSTRUCTIONS),))]
            return [error]
        return _session_event(kind, data)

    def _answer(self, *, speaking: bool) -> list[ServerMessage]:
        began_or_ended = speaking != self._speaking
        self._speaking = speaking
        return [ResponseActive(speaking)] if began_or_ended else []

    def _listens(self, data: dict[str, Any]) -> Sequence[ServerMessage]:
        return [*self._answer(speaking=False), _unit(data, listening=True)]

    def _speaks(self, data: dict[str, Any], audio: object, ends: bool = False) -> Sequence[ServerMessage]:
        length = 0 if audio is None or data.get("kind") == "text" else size(audio)
        if length is None or length % 4:
            return [ProtocolError("an audio delta that is not base64 of float32")]
        text = clipped(data.get("text") or "")
        seconds = length / 4 / (rate_of(_rate(data)) or OUTPUT_RATE)
        heard: list[ServerMessage] = [AudioOutput(seconds, text, bool(length) and is_silence(str(audio)))]
        began = self._answer(speaking=True)
        ended = self._answer(speaking=False) if ends else []
        return [*began, _unit(data, listening=False), *(heard if length or text else []), *ended]


def _session_event(kind: str, data: dict[str, Any]) -> Sequence[ServerMessage]:
    if kind == "error":
        return [error_of(data)]
    if kind == "session.closed":
        return [session_closed(data)]
    return () if kind in _SILENT else [Named(clipped(kind, 60))]


def _unit(data: dict[str, Any], *, listening: bool) -> UnitAnswered:
    number = next(
        (data[key] for key in ("input_id", "unit_index") if isinstance(data.get(key), int | str)), None
    )
    return UnitAnswered(listening, number, context_tokens(data))


def _rate(data: dict[str, Any]) -> dict[str, Any]:
    return {"sample_rate_hz": data.get("sample_rate")}


def _natural(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else None


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else None


def floats_to_text(samples: Audio) -> str:
    """[samples] float32 as little-endian bytes in base64."""
    return base64.b64encode(samples.astype("<f4").tobytes()).decode("ascii")


def floats_of(text: object) -> Audio | None:
    """[samples] float32 from base64; None if it is not that, or if a sample is not finite."""
    data = raw(text)
    if data is None or len(data) % 4:
        return None
    samples = np.frombuffer(data, dtype="<f4").astype(np.float32)
    return samples if bool(np.isfinite(samples).all()) else None


class MiniCpmServerCodec(TurnsOfTheProfile):
    """A server with version 2 of this protocol: one answer per unit, listening or speaking."""

    traits = TRAITS

    def __init__(self) -> None:
        self._created = False
        self._tokens = 0

    def greeting(self) -> Sequence[Message]:
        return [pack("session.queue_done")]

    def refusal(self, why: str) -> Sequence[Message]:
        return [pack("error", error={"code": "queue_full", "type": "server_error", "message": why})]

    def read(self, message: Message) -> Sequence[ClientMessage]:
        data = unpack(message)
        if data is None:
            return [NO_EVENT]
        kind = data["type"]
        if kind == "session.update":
            again, self._created = self._created, True
            created = pack("session.updated" if again else "session.created", session_id="reference")
            return [Answered((created,))]
        if kind == "session.close":
            return [InputFinished(), Leaving()]
        if kind != APPEND:
            return [Answered((_error("unknown_event", f"{clipped(kind, 60)} is not known"),))]
        if not self._created:
            return [Answered((_error("not_ready", "session.update comes first"),))]
        samples = floats_of(data.get("audio"))
        if samples is None:
            return [Answered((_error("invalid_audio", "audio is not base64 of finite float32"),))]
        return [AudioReceived(samples)]

    def answer(
        self, audio: Audio, text: str, backlog_samples: int, speaking: bool = True
    ) -> Sequence[Message]:
        self._tokens += 1 + len(text.split())
        if not speaking:
            return [pack("response.listen", kv_cache_length=self._tokens)]
        return [
            pack(
                "response.output_audio.delta",
                text=text,
                audio=floats_to_text(audio_at_output_rate(audio)),
                kv_cache_length=self._tokens,
                end_of_turn=False,
            )
        ]

    def echo(self, mark: int) -> Sequence[Message]:
        return ()

    def farewell(self) -> Sequence[Message]:
        return [pack("session.closed", reason="stopped")]


def audio_at_output_rate(audio: Audio) -> Audio:
    """[samples] at the input's rate, by linear interpolation at the output's."""
    count = round(len(audio) * OUTPUT_RATE / TRAITS.sample_rate)
    at = np.arange(count) * (TRAITS.sample_rate / OUTPUT_RATE)
    audio_at: Audio = np.interp(at, np.arange(len(audio)), audio).astype(np.float32)
    return audio_at


def _error(code: str, why: str) -> Message:
    return pack("error", error={"code": code, "type": "invalid_request_error", "message": why})
