"""What a session that lives by itself tells: on a socket (backends/websocket/session.py), or on an engine
(backends/vllm/session.py)."""

from __future__ import annotations

from dataclasses import dataclass

from metronome_cli.core.types import EndReason
from metronome_cli.measure.ledger import FrameRecord
from metronome_cli.protocols.messages import BacklogReported


@dataclass(slots=True)
class SessionStarted:
    """It may speak, `wait_s` after it came: the handshake is over, or its past is in the cache."""

    index: int
    wait_s: float


@dataclass(slots=True)
class FrameSent:
    """One frame was handed over, `late_s` after its planned time."""

    due_s: float
    late_s: float


@dataclass(slots=True)
class FrameGivenUp:
    """A frame was given up: nothing came for so long that the engine is not just slow."""


@dataclass(slots=True)
class SessionEnded:
    """The session is over. Seconds of audio sent and heard, where a socket counted them."""

    index: int
    reason: EndReason
    detail: str
    sent_s: float = 0.0
    heard_s: float = 0.0


@dataclass(slots=True)
class Reconnected:
    """A session whose connection ended for that reason is seated again."""

    index: int
    reason: EndReason
    detail: str


SessionEvent = (
    SessionStarted | FrameSent | FrameGivenUp | BacklogReported | Reconnected | SessionEnded | FrameRecord
)
