"""Converts server messages to the events of the listener model (measure/listener.py)."""

from __future__ import annotations

from collections.abc import Iterator

from metronome_cli.backends.interface import Sound
from metronome_cli.core.call_events import CallEvent, CallEventKind
from metronome_cli.protocols import messages
from metronome_cli.protocols.interface import ProtocolTraits

WORDS_ONLY = ("moshi-server", "vllm-realtime", "transcription")  # their output is text, or acknowledges input
CONTEXT_LIMITS = {"minicpm": 8192}  # positions of a session's cache; MiniCPM-o-Demo's default
ENDS = {
    "completed": CallEventKind.ANSWER_DONE,
    "cancelled": CallEventKind.ANSWER_CANCELLED,
    "failed": CallEventKind.ANSWER_BROKEN,
    "incomplete": CallEventKind.ANSWER_BROKEN,
}


def sound_of(traits: ProtocolTraits) -> Sound:
    """Return how the sound of a protocol is played."""
    if traits.name in WORDS_ONLY:
        return "none"
    return "steady" if traits.steady else "answers"


def call_events(session: int, now_s: float, event: messages.ServerMessage) -> Iterator[CallEvent]:
    """Return the listener events of a message; none if the listener does not hear it."""
    if isinstance(event, messages.AudioOutput):
        kind = CallEventKind.SOUND if event.seconds > 0 else CallEventKind.TEXT
        yield CallEvent(session, now_s, kind, event.seconds)
    elif isinstance(event, messages.ResponseActive):
        ended = ENDS.get(event.status, CallEventKind.ANSWER_DONE)
        yield CallEvent(session, now_s, CallEventKind.ANSWER_BEGAN if event.speaking else ended)
    elif isinstance(event, messages.UnitAnswered):
        if event.listening:
            yield CallEvent(session, now_s, CallEventKind.LISTENS)
        if event.context_tokens is not None:
            yield CallEvent(session, now_s, CallEventKind.CACHE, event.context_tokens)
    elif isinstance(event, messages.UserSpeech):
        yield CallEvent(
            session, now_s, CallEventKind.USER_HEARD if event.speaking else CallEventKind.USER_ENDED
        )
