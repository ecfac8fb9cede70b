"""Server of the OpenAI Realtime protocol, as a reference for clients: every event as the GA or the beta API sends it.

Turns end by energy (protocols/turn_end.py) unless the client asks for no turn detection; then it commits and asks for
a response itself. A response lasts `answer_s` seconds of sound, or until the client or the user's speech
cancels it. Source: platform.openai.com/docs/api-reference/realtime-server-events and the types of the openai
package, which validate every event in the tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metronome_cli.core.types import Audio
from metronome_cli.protocols.interface import ProtocolTraits
from metronome_cli.protocols.json_audio import APPEND, appended
from metronome_cli.protocols.messages import (
    Answered,
    ClientMessage,
    Leaving,
    Message,
    ProtocolError,
    clipped,
)
from metronome_cli.protocols.openai_realtime import TRAITS
from metronome_cli.protocols.pcm import pack, to_text, unpack
from metronome_cli.protocols.turn_end import SILENCE_S, SpeechEnd, turn_detection

MODEL = "metronome-reference"
ANSWER_S = 4.0
_BETA_NAMES = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
}


@dataclass(slots=True)
class _Response:
    """An answer that is open."""

    number: int
    sound_s: float = 0.0
    words: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"resp_{self.number:03}"

    @property
    def item_id(self) -> str:
        return f"msg_{self.number:03}"


class RealtimeServerCodec:
    """The server's side of one session."""

    traits: ProtocolTraits = TRAITS

    def __init__(self, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._beta = False
        self._events = itertools.count(1)
        self._numbers = itertools.count(1)
        self._turns: dict[str, Any] | None = {**(turn_detection("vad") or {}), "interrupt_response": True}
        self._ends = SpeechEnd(TRAITS.sample_rate)
        self._heard_s = 0.0
        self._buffered_s = 0.0  # audio that no item has taken yet
        self._user_item = ""  # that the user's speech will become
        self._last_item: str | None = None
        self._items: dict[str, dict[str, Any]] = {}
        self._response: _Response | None = None
        self._take: dict[str, Callable[[dict[str, Any]], Sequence[Message]]] = {
            "session.update": self._update,
            "input_audio_buffer.commit": self._commit,
            "input_audio_buffer.clear": self._clear,
            "response.create": self._create_response,
            "response.cancel": self._cancel_response,
            "conversation.item.create": self._create_item,
            "conversation.item.delete": self._delete_item,
            "conversation.item.retrieve": self._retrieve_item,
            "conversation.item.truncate": self._truncate_item,
        }

    def connected(self, headers: Mapping[str, str]) -> None:
        """The client's upgrade: it names the beta in a header or in its subprotocols."""
        offered = headers.get("OpenAI-Beta", "") + headers.get("Sec-WebSocket-Protocol", "")
        self._beta = "realtime=v1" in offered or "openai-beta.realtime-v1" in offered

    def speaks(self, drawn: bool) -> bool:
        """Whether the model speaks now: while a response is open, whatever was drawn."""
        return self._response is not None

    def greeting(self) -> Sequence[Message]:
        return [self._event("session.created", session=self._session())]

    def refusal(self, why: str) -> Sequence[Message]:
        return [self._error("resource_exhausted", why, kind="server_error")]

    def read(self, message: Message) -> Sequence[ClientMessage]:
        data = unpack(message)
        if data is None:
            return [Answered((self._error("invalid_json", "the message is not a JSON object with a type"),))]
        kind = data["type"]
        if kind == APPEND:
            return self._append(data)
        if kind == "session.close":
            return [Leaving()]
        take = self._take.get(kind)
        if take is None:
            return [Answered((self._error("unknown_event", f"{clipped(kind, 60)} is not known", data),))]
        return [Answered(tuple(take(data)))]

    # -- the user ---------------------------------------------------------------------------------------------------

    def _append(self, data: dict[str, Any]) -> Sequence[ClientMessage]:
        heard = appended(data)
        if isinstance(heard, ProtocolError):
            return [Answered((self._error("invalid_value", heard.what, data, "audio"),))]
        said = tuple(self._hear(heard.samples)) if self._turns is not None else ()
        seconds = len(heard.samples) / TRAITS.sample_rate
        self._heard_s += seconds
        self._buffered_s += seconds
        return [heard, Answered(said)] if said else [heard]

    def _hear(self, samples: Audio) -> list[Message]:
        """Events of the voice activity detection for one piece of audio."""
        assert self._turns is not None
        before = self._ends.speaking
        ended = self._ends.ended(samples)
        if self._ends.speaking and not before:
            return self._speech_started(self._turns)
        return self._speech_stopped(self._turns) if ended else []

    def _speech_started(self, turns: Mapping[str, Any]) -> list[Message]:
        start_ms = max(0, round(1000 * self._heard_s) - int(turns.get("prefix_padding_ms") or 0))
        item = self._open_user_item()
        started = self._event("input_audio_buffer.speech_started", audio_start_ms=start_ms, item_id=item)
        cut_off = turns.get("interrupt_response", True) and self._response is not None
        return [started, *(self._finish("cancelled", "turn_detected") if cut_off else ())]

    def _speech_stopped(self, turns: Mapping[str, Any]) -> list[Message]:
        end_ms = round(1000 * self._heard_s)
        item = self._open_user_item()
        stopped = self._event("input_audio_buffer.speech_stopped", audio_end_ms=end_ms, item_id=item)
        answers = turns.get("create_response", True) and self._response is None
        return [stopped, *self._committed(), *(self._begin() if answers else ())]

    def _open_user_item(self) -> str:
        self._user_item = self._user_item or f"item_{next(self._numbers):03}"
        return self._user_item

    def _committed(self) -> list[Message]:
        """Make the user's speech an item of the conversation."""
        item_id, before = self._open_user_item(), self._last_item
        self._user_item, self._buffered_s = "", 0.0
        content = {"type": "input_audio", "transcript": None}
        item = self._item(item_id, "user", [content], "completed")
        committed = self._event("input_audio_buffer.committed", item_id=item_id, previous_item_id=before)
        return [committed, *self._added(item, before)]

    # -- the client's events ----------------------------------------------------------------------------------------

    def _update(self, data: dict[str, Any]) -> Sequence[Message]:
        session = data.get("session")
        if not isinstance(session, dict):
            return [self._error("invalid_value", "session is not an object", data, "session")]
        audio = session.get("audio")
        given = audio.get("input") if isinstance(audio, dict) else session
        given = given if isinstance(given, dict) else {}
        if "turn_detection" in given:
            detection = given["turn_detection"]
            if detection is not None and not isinstance(detection, dict):
                return [
                    self._error("invalid_value", "turn_detection is not an object", data, "turn_detection")
                ]
            self._set_turns(detection)
        return [self._event("session.updated", session=self._session())]

    def _set_turns(self, detection: Mapping[str, Any] | None) -> None:
        if detection is None:
            self._turns = None
            return
        defaults = {**(turn_detection("vad") or {}), "interrupt_response": True}
        self._turns = {**defaults, **{name: value for name, value in detection.items() if name in defaults}}
        silence_ms = self._turns["silence_duration_ms"]
        usable = isinstance(silence_ms, int) and 10 <= silence_ms <= 10_000
        self._turns.update(type="server_vad")
        self._ends = SpeechEnd(TRAITS.sample_rate, silence_ms / 1000 if usable else SILENCE_S)

    def _commit(self, data: dict[str, Any]) -> Sequence[Message]:
        if self._buffered_s < 0.1:
            why = f"the buffer has {1000 * self._buffered_s:.0f} ms of audio; 100 ms is the least"
            return [self._error("input_audio_buffer_commit_empty", why, data)]
        return self._committed()

    def _clear(self, data: dict[str, Any]) -> Sequence[Message]:
        self._buffered_s, self._user_item = 0.0, ""
        self._ends = SpeechEnd(TRAITS.sample_rate)
        return [self._event("input_audio_buffer.cleared")]

    def _create_response(self, data: dict[str, Any]) -> Sequence[Message]:
        if self._response is not None:
            why = f"{self._response.id} is still in progress"
            return [self._error("conversation_already_has_active_response", why, data)]
        return self._begin()

    def _cancel_response(self, data: dict[str, Any]) -> Sequence[Message]:
        if self._response is None:
            return [self._error("response_cancel_not_active", "no response is in progress", data)]
        return self._finish("cancelled", "client_cancelled")

    def _create_item(self, data: dict[str, Any]) -> Sequence[Message]:
        given = data.get("item")
        role = given.get("role") if isinstance(given, dict) else None
        if (
            not isinstance(given, dict)
            or given.get("type") != "message"
            or role not in ("user", "assistant", "system")
        ):
            return [self._error("invalid_value", "item is not a message with a role", data, "item")]
        text = "input_text" if role != "assistant" else "text" if self._beta else "output_text"
        parts = given.get("content")
        said = [
            {"type": text, "text": str(part["text"])}
            for part in (parts if isinstance(parts, list) else [])
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
        item = self._item(str(given.get("id") or f"item_{next(self._numbers):03}"), role, said, "completed")
        return self._added(item, self._last_item)

    def _delete_item(self, data: dict[str, Any]) -> Sequence[Message]:
        item_id = data.get("item_id")
        if not isinstance(item_id, str) or self._items.pop(item_id, None) is None:
            return [self._no_item(data)]
        return [self._event("conversation.item.deleted", item_id=item_id)]

    def _retrieve_item(self, data: dict[str, Any]) -> Sequence[Message]:
        item = self._items.get(str(data.get("item_id")))
        return [
            self._no_item(data) if item is None else self._event("conversation.item.retrieved", item=item)
        ]

    def _truncate_item(self, data: dict[str, Any]) -> Sequence[Message]:
        item_id, end_ms = data.get("item_id"), data.get("audio_end_ms")
        if str(item_id) not in self._items or not isinstance(end_ms, int):
            return [self._no_item(data)]
        return [
            self._event("conversation.item.truncated", item_id=item_id, audio_end_ms=end_ms, content_index=0)
        ]

    def _no_item(self, data: dict[str, Any]) -> Message:
        return self._error("item_not_found", f"no item {clipped(data.get('item_id'), 60)}", data, "item_id")

    # -- the model --------------------------------------------------------------------------------------------------

    def _begin(self) -> list[Message]:
        """A response, its item and the part that will hold its sound."""
        response = self._response = _Response(next(self._numbers))
        item = self._item(response.item_id, "assistant", [], "in_progress")
        return [
            self._event("response.created", response=self._response_object("in_progress")),
            self._of_response("response.output_item.added", item=item, part=False),
            *self._added(item, self._last_item, done=False),
            self._of_response("response.content_part.added", part=self._part("")),
        ]

    def answer(
        self, audio: Audio, text: str, backlog_samples: int, speaking: bool = True
    ) -> Sequence[Message]:
        """One frame of the model's output; nothing without an open response."""
        response = self._response
        if response is None:
            return ()
        messages = [self._of_response("response.output_audio.delta", delta=to_text(audio))]
        if text:
            response.words.append(text)
            messages.append(self._of_response("response.output_audio_transcript.delta", delta=f"{text} "))
        response.sound_s += len(audio) / TRAITS.sample_rate
        return (
            messages if response.sound_s < self._answer_s - 1e-6 else [*messages, *self._finish("completed")]
        )

    def _finish(self, status: str, reason: str = "") -> list[Message]:
        """End the open response."""
        assert self._response is not None
        words = "".join(f"{word} " for word in self._response.words)
        done = "completed" if status == "completed" else "incomplete"
        kind = "audio" if self._beta else "output_audio"
        item = self._item(self._response.item_id, "assistant", [{"type": kind, "transcript": words}], done)
        messages = [
            self._of_response("response.output_audio.done"),
            self._of_response("response.output_audio_transcript.done", transcript=words),
            self._of_response("response.content_part.done", part=self._part(words)),
            self._of_response("response.output_item.done", item=item, part=False),
            *(
                []
                if self._beta
                else [self._event("conversation.item.done", item=item, previous_item_id=None)]
            ),
            self._event("response.done", response=self._response_object(status, reason, [item])),
        ]
        self._response = None
        return messages

    def echo(self, mark: int) -> Sequence[Message]:
        return ()

    def farewell(self) -> Sequence[Message]:
        return ()

    # -- their form -------------------------------------------------------------------------------------------------

    def _event(self, kind: str, **fields: object) -> Message:
        name = _BETA_NAMES.get(kind, kind) if self._beta else kind
        return pack(name, event_id=f"event_{next(self._events)}", **fields)

    def _of_response(self, kind: str, part: object = True, **fields: object) -> Message:
        """An event of the open response; `part`: it is of the content part, or carries that."""
        assert self._response is not None
        ids: dict[str, object] = {"response_id": self._response.id, "output_index": 0}
        if part is not False:
            ids.update(item_id=self._response.item_id, content_index=0)
        if isinstance(part, dict):
            ids["part"] = part
        return self._event(kind, **ids, **fields)

    def _part(self, transcript: str) -> dict[str, Any]:
        return {"type": "audio", "transcript": transcript}

    def _item(self, item_id: str, role: str, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
        item = {"id": item_id, "object": "realtime.item", "type": "message", "role": role}
        return {**item, "status": status, "content": content}

    def _added(self, item: dict[str, Any], before: str | None, done: bool = True) -> list[Message]:
        """Add the item to the conversation; the GA API also reports it as done."""
        self._items[item["id"]] = item
        self._last_item = item["id"]
        if self._beta:
            return [self._event("conversation.item.created", item=item, previous_item_id=before)]
        kinds = ("added", "done") if done else ("added",)
        return [
            self._event(f"conversation.item.{kind}", item=item, previous_item_id=before) for kind in kinds
        ]

    def _response_object(
        self, status: str, reason: str = "", output: Sequence[Mapping[str, Any]] = ()
    ) -> dict[str, Any]:
        assert self._response is not None
        fields: dict[str, Any] = {
            "object": "realtime.response",
            "id": self._response.id,
            "status": status,
            "status_details": {"type": status, "reason": reason} if reason else None,
            "output": list(output),
            "conversation_id": "conv_001",
            "metadata": None,
            "max_output_tokens": "inf",
            "usage": None,
        }
        spoken: dict[str, Any] = {
            "modalities": ["audio", "text"],
            "output_audio_format": "pcm16",
            "voice": "alloy",
        }
        return {**fields, **(spoken if self._beta else {"output_modalities": ["audio"]})}

    def _session(self) -> dict[str, Any]:
        pcm = {"type": "audio/pcm", "rate": TRAITS.sample_rate}
        if self._beta:
            return {
                "id": "sess_001",
                "model": "gpt-4o-realtime-preview",
                "modalities": ["audio", "text"],
                "voice": "alloy",
                "input_audio_format": "pcm16",
                "output_audio_format": "pcm16",
                "turn_detection": self._turns,
            }
        return {
            "type": "realtime",
            "id": "sess_001",
            "model": MODEL,
            "output_modalities": ["audio"],
            "audio": {
                "input": {"format": pcm, "turn_detection": self._turns},
                "output": {"format": pcm, "voice": "alloy"},
            },
        }

    def _error(
        self,
        code: str,
        why: str,
        about: Mapping[str, Any] | None = None,
        param: str | None = None,
        kind: str = "invalid_request_error",
    ) -> Message:
        """Return an error event; it carries the event_id of `about`, the client's wrong event."""
        given = None if about is None else about.get("event_id")
        event_id = given if isinstance(given, str) else None
        error = {"type": kind, "code": code, "message": why, "param": param, "event_id": event_id}
        return self._event("error", error=error)
