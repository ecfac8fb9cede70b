"""A session as the load plans it, and what a backend reports of it.

Times are seconds on the trial clock unless named otherwise; the clock is 0 when `BackendRun.begin` returns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from metronome_cli.core.call_events import CallEvent
from metronome_cli.core.types import Audio, EndReason

Batching = Literal["continuous", "periodic"]  # a step when a frame is due, or one a period


class AudioStream(Protocol):
    """One session's audio."""

    def frame(self, k: int) -> Audio:
        """Samples of frame k: [samples] float32."""


class AudioSource(Protocol):
    """Distinct audio for each session, by its index."""

    def stream(self, index: int) -> AudioStream: ...


class TurnSchedule(Protocol):
    """When the model speaks in one session."""

    def speaking(self, t_s: float) -> bool:
        """Return whether the model speaks at session age `t_s`."""

    def runs(self, age_s: float, period_s: float, frames: int) -> list[int]:
        """For `frames` frames from that age on: the lengths of listening and speaking runs, listening first."""


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A session that starts at `start_s`, is `age_s` old then, and stays for `lifetime_s`.

    Numbers only, so that it can be sent to another process. The workload gives audio and turns for the index.
    """

    start_s: float
    age_s: float = 0.0
    lifetime_s: float = math.inf
    index: int = 0


@dataclass(frozen=True, slots=True)
class FrameResult:
    """One answered frame. `expected` and `delivered`: tokens or outputs that were owed and that came."""

    session: int
    due_s: float
    done_s: float
    expected: int
    delivered: int

    @property
    def latency_ms(self) -> float:
        return (self.done_s - self.due_s) * 1e3

    @property
    def empty(self) -> bool:
        """Output was owed and none came."""
        return self.expected > 0 and self.delivered == 0


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """One observation: the frames of an engine step, or those that were due in one period.

    `late_s`: how long after the planned time the load generator submitted it, the latest frame counting.
    `delay_s`: by how much the generator may have delayed the answers, lateness inherited from earlier batches
    included. `sent_late_s`: lateness of every frame that was sent on its own; a batch without frames carries only that.
    """

    frames: Sequence[FrameResult]
    late_s: float = 0.0
    delay_s: float = 0.0
    stages_s: Mapping[str, float] = field(default_factory=dict)
    sent_late_s: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """The session may send audio, `setup_s` after it was opened."""

    session: int
    setup_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session is over. `sent_s`, `received_s`: seconds of audio, where a protocol counts them.

    `limited_by`: what the backend lacked if it rejected the session.
    """

    session: int
    reason: EndReason
    detail: str = ""
    at_s: float | None = None
    sent_s: float = 0.0
    received_s: float = 0.0
    limited_by: Literal["slots", "memory"] = "slots"


@dataclass(frozen=True, slots=True)
class Reconnected:
    """A session is ready again after its connection ended for `reason`."""

    session: int
    reason: EndReason
    detail: str


@dataclass(frozen=True, slots=True)
class BacklogReported:
    """Input that the server has not processed yet, as it reports it, in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class FrameSent:
    """A streaming session submitted one frame, `late_s` after its planned time."""

    due_s: float
    late_s: float


@dataclass(frozen=True, slots=True)
class FrameGivenUp:
    """A streaming session gave up a frame, because no answer came within the timeout."""


@dataclass(frozen=True, slots=True)
class MisbehavedEnded:
    """A session that misbehaved on purpose is over, `held_s` after it began to.

    `by_server`: the server ended it; else it was still held when its time was over, or broke off by itself.
    """

    session: int
    behaviour: str
    held_s: float
    by_server: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MessagesCounted:
    """What a server sent besides answers since the last such event: unknown messages by name, errors by code.

    `silent_s`: seconds of output that were digital silence, of `sound_s` in all.
    """

    names: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    silent_s: float = 0.0
    sound_s: float = 0.0


SessionEvent = (
    FrameBatch
    | SessionStarted
    | SessionEnded
    | Reconnected
    | BacklogReported
    | CallEvent
    | MisbehavedEnded
    | MessagesCounted
)
HostEvent = (
    FrameResult
    | FrameSent
    | FrameGivenUp
    | SessionStarted
    | SessionEnded
    | Reconnected
    | BacklogReported
    | CallEvent
    | MisbehavedEnded
    | MessagesCounted
)
