"""Events of a call: sound, answers, turns, and what the server reports of its model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class CallEventKind(IntEnum):
    """The meaning of a CallEvent, and of its `value`."""

    SOUND = 0  # a message with sound came; value: seconds of sound, more than 0
    TEXT = 1  # a message with text came
    LISTENS = 2  # the model answered that it listens
    ANSWER_BEGAN = 3
    ANSWER_DONE = 4  # complete
    ANSWER_CANCELLED = 5  # by the user's speech
    ANSWER_BROKEN = 6  # failed, incomplete
    USER_HEARD = 7  # the server reported the start of speech
    USER_ENDED = 8  # the server reported the end of speech
    CACHE = 9  # value: positions in the session's KV cache
    TURN = 10  # the user starts a turn, as planned; value: when its last speech sample is sent, s
    BARGE_IN = 11  # the user speaks over the answer, as planned
    BACKCHANNEL = 12  # a short "mm-hm" over the answer, as planned
    CONNECTED = 13  # sound may come from now on
    GONE = 14  # the connection broke off
    ENDED = 15  # the session ended as planned


@dataclass(frozen=True, slots=True)
class CallEvent:
    """Something that happened in one call at `at_s` on the trial clock: when a message was complete, or as planned."""

    session: int
    at_s: float
    kind: CallEventKind
    value: float = 0.0
