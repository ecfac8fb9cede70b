"""What a session over the network tells of itself."""

from __future__ import annotations

from dataclasses import dataclass

from metronome_cli.engine.types import EndReason
from metronome_cli.measure.ledger import FrameRecord


@dataclass(slots=True)
class Seated:
    """The handshake is over, after `wait_s`."""

    index: int
    wait_s: float


@dataclass(slots=True)
class Paced:
    """One frame went out, `late_s` after its planned time."""

    due_s: float
    late_s: float


@dataclass(slots=True)
class Lagged:
    """The server's own account of its backlog."""

    seconds: float


@dataclass(slots=True)
class Ended:
    """The session is over."""

    index: int
    reason: EndReason
    detail: str
    sent_s: float
    heard_s: float


@dataclass(slots=True)
class Returned:
    """A session whose connection ended for that reason is seated again."""

    index: int
    reason: EndReason
    detail: str


News = Seated | Paced | Lagged | Returned | Ended | FrameRecord
