"""The unmodified `openai` SDK as a client of a realtime server: GA or beta. Prints what it saw as one JSON line.

python openai_side.py ws://127.0.0.1:PORT/v1/realtime ga|beta
"""

import base64
import json
import sys
import urllib.parse
from collections import Counter

import numpy as np
import openai
from pydantic import BaseModel, TypeAdapter

RATE = 24_000
SENT_BY_OPENAI = (".session.id",)  # by its servers, and in no type of the SDK


def sound(seconds, level):
    at = np.arange(round(seconds * RATE)) / RATE
    return (level * 32767 * np.sin(2 * np.pi * 220 * at)).astype("<i2").tobytes()


def unknown_fields(value, path=""):
    """Fields that the SDK's types do not have."""
    if isinstance(value, BaseModel):
        found = [f"{path}.{name}" for name in value.model_extra or {}]
        return found + [
            field
            for name in type(value).model_fields
            for field in unknown_fields(getattr(value, name), f"{path}.{name}")
        ]
    if isinstance(value, list):
        return [field for item in value for field in unknown_fields(item, f"{path}[]")]
    return []


class Session:
    """One connection; every event that comes is validated strictly before it counts."""

    def __init__(self, connection, event_type):
        self.connection = connection
        self.types = TypeAdapter(event_type)
        self.seen = Counter()
        self.wrong = []
        self.events = []

    def receive(self):
        data = json.loads(self.connection.recv_bytes())
        try:
            event = self.types.validate_python(data, strict=True)
        except ValueError as error:
            self.wrong.append(f"{data.get('type')}: {str(error)[:400]}")
            event = None
        else:
            self.wrong += [
                f"{data['type']}{path}" for path in unknown_fields(event) if path not in SENT_BY_OPENAI
            ]
        parsed = self.connection.parse_event(json.dumps(data))
        if parsed.type != data["type"]:
            self.wrong.append(f"{data['type']} was read as {parsed.type}")
        self.seen[data["type"]] += 1
        self.events.append(data)
        return data

    def until(self, kind, most=400):
        for _ in range(most):
            data = self.receive()
            if data["type"] == kind:
                return data
        raise AssertionError(f"no {kind} in {most} events: {dict(self.seen)}")

    def say(self, pcm):
        for start in range(0, len(pcm), 3840):
            piece = base64.b64encode(pcm[start : start + 3840]).decode()
            self.connection.input_audio_buffer.append(audio=piece)


def converse(session, beta):
    connection = session.connection
    session.until("session.created")
    connection.session.update(session={} if beta else {"type": "realtime"})
    session.until("session.updated")
    session.say(sound(1.0, 0.5) + bytes(2 * RATE))  # a turn that the server ends
    session.until("input_audio_buffer.speech_started")
    session.until("input_audio_buffer.speech_stopped")
    session.until("input_audio_buffer.committed")
    session.until("conversation.item.created" if beta else "conversation.item.added")
    first = session.until("response.created")["response"]["id"]
    delta = "response.audio.delta" if beta else "response.output_audio.delta"
    session.say(bytes(2 * RATE))
    session.until(delta)
    connection.response.cancel()
    done = session.until("response.done")
    cancelled = (done["response"]["id"] == first, done["response"]["status"])

    detection = {"type": "server_vad", "create_response": False}
    audio = (
        {"turn_detection": None}
        if beta
        else {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    )
    connection.session.update(session=audio)
    session.until("session.updated")
    connection.input_audio_buffer.clear()
    session.until("input_audio_buffer.cleared")
    connection.input_audio_buffer.commit()
    empty = session.until("error")["error"]
    session.say(sound(0.5, 0.5))
    connection.input_audio_buffer.commit()
    session.until("input_audio_buffer.committed")
    connection.conversation.item.create(
        item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    )
    session.until("conversation.item.created" if beta else "conversation.item.done")
    connection.response.create()
    session.until("response.created")
    session.say(bytes(round(2 * RATE * 12)))  # more than the answer needs
    whole = session.until("response.done", 2000)
    connection.send({"type": "nonsense.event", "event_id": "mine"})
    nonsense = session.until("error")["error"]
    connection.send({"type": "input_audio_buffer.append", "audio": "no base64!"})
    bad_audio = session.until("error")["error"]
    own = [
        event for event in session.events if event["type"].startswith("response.") and "response_id" in event
    ]
    return {
        "cancelled": cancelled,
        "empty": empty["code"],
        "whole": whole["response"]["status"],
        "nonsense": [nonsense["code"], nonsense["event_id"]],
        "bad_audio": bad_audio["code"],
        "deltas": session.seen[delta],
        "ids": len({event["event_id"] for event in session.events}) == len(session.events),
        "own": len(own),
        "detection": detection["type"],
    }


def main(url, flavour):
    parts = urllib.parse.urlsplit(url)
    base = f"http://{parts.netloc}/v1"
    client = openai.OpenAI(api_key="none", base_url=base, websocket_base_url=f"ws://{parts.netloc}/v1")
    if flavour == "beta":
        from openai.types.beta.realtime import RealtimeServerEvent

        manager = client.beta.realtime.connect(model="gpt-4o-realtime-preview")
    else:
        from openai.types.realtime import RealtimeServerEvent

        manager = client.realtime.connect(model="gpt-realtime")
    with manager as connection:
        session = Session(connection, RealtimeServerEvent)
        try:
            told = converse(session, flavour == "beta")
        except Exception as error:
            told = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps({**told, "wrong": session.wrong, "seen": session.seen}))


if __name__ == "__main__":
    main(*sys.argv[1:])
