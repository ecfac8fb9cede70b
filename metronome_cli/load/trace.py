"""A load on record: who came, when, at which age and for how long, what they listened to, and who spoke when.

What is recorded is the load alone, never an answer to it: callers as they came to the door, those who were turned away
among them, each with the whole life that he asked for. The same load can so be given to an engine that is slower or
faster, refuses more or fewer, or ends sessions earlier.

A run begins with its `RunHead`, has a `Caller` each, and an `end`: how far its clock had come.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field

from metronome_cli.config.fields import StrictModel
from metronome_cli.core.session import AudioStream, SessionSpec, TurnSchedule

MAX_FRAMES = 10**9
Seconds = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1e9)]
Whole = Annotated[int, Field(strict=True, ge=0, le=MAX_FRAMES)]
Text = Annotated[str, Field(strict=True, max_length=4096)]
Ages = Literal["spread", "start", "end"]


class TraceTrial(StrictModel):
    """One run of sessions. `purpose` is the trial's or the policy's name; `ages`, `memory_only` as in `TrialPlan`."""

    trial: Whole = 0
    kind: Literal["point", "arm"] = "point"
    purpose: Text
    sessions: Annotated[int, Field(strict=True, ge=1, le=10**7)]
    ages: Ages = "start"
    memory_only: Annotated[bool, Field(strict=True)] = False
    length_s: Seconds | None = None


class TraceSession(StrictModel):
    """One session. `loop_offset`: the sample of the audio loop at which its first frame begins.

    `turn_frames`: frames in which the model listens, then frames in which it speaks, and so on; for the whole lifetime.
    """

    session: Whole
    start_s: Seconds
    age_s: Seconds
    lifetime_s: Annotated[Seconds, Field(gt=0)]
    phase_s: Seconds
    loop_offset: Whole
    turn_frames: list[Whole]

    @property
    def spec(self) -> SessionSpec:
        return SessionSpec(self.start_s, self.age_s, self.lifetime_s, self.session)


class TraceTrialEnd(StrictModel):
    """The clock of that run when it ended."""

    trial_end: Whole
    at_s: Seconds


@dataclass(frozen=True, slots=True)
class RecordedTrial:
    """One run that was recorded to its end."""

    head: TraceTrial
    callers: Sequence[TraceSession]
    end_s: float


class TraceRecorder(Protocol):
    """Takes what a run's load is made of. Never raises for reasons of its own."""

    def begin(self, head: TraceTrial) -> Callable[[TraceSession], None] | None:
        """A run begins; who takes its callers, None when nobody does."""

    def end(self, at_s: float) -> None:
        """It ended at that instant of its clock."""


class NoRecorder:
    """Keeps nothing."""

    def begin(self, head: TraceTrial) -> None:
        return None

    def end(self, at_s: float) -> None: ...


class LoopedAudio(Protocol):
    """Distinct audio and a distinct phase for each session, all out of one loop."""

    def stream(self, index: int) -> AudioStream:
        """The audio of session `index`."""

    def phase_s(self, index: int) -> float:
        """Offset of the session's frames within the period, seconds."""

    def start(self, index: int) -> int:
        """The sample of the loop at which session `index` begins."""

    def at(self, start: int) -> AudioStream:
        """The stream that begins at that sample."""


def trace_session(
    session: SessionSpec, audio: LoopedAudio, turns: TurnSchedule, period_s: float
) -> TraceSession:
    """The session as a load trace keeps it. Its lifetime must be finite."""
    return TraceSession(
        session=session.index,
        start_s=session.start_s,
        age_s=session.age_s,
        lifetime_s=session.lifetime_s,
        phase_s=audio.phase_s(session.index),
        loop_offset=audio.start(session.index),
        turn_frames=turns.runs(session.age_s, period_s, math.floor(session.lifetime_s / period_s) + 1),
    )


class RecordedAudio:
    """The audio and the phases of a recorded trial, out of the same loop."""

    def __init__(self, run: RecordedTrial, loop: LoopedAudio) -> None:
        self._sessions = run.callers
        self._loop = loop

    def stream(self, index: int) -> AudioStream:
        return self._loop.at(self.start(index))

    def phase_s(self, index: int) -> float:
        return self._sessions[index].phase_s

    def start(self, index: int) -> int:
        return self._sessions[index].loop_offset

    def at(self, start: int) -> AudioStream:
        return self._loop.at(start)


class RecordedTurns:
    """Who speaks in which frame of one recorded caller; after the last recorded frame it stays as it is."""

    def __init__(self, caller: TraceSession, period_s: float) -> None:
        self._age_s = caller.age_s
        self._period_s = period_s
        self._lengths = caller.turn_frames
        self._ends = list(itertools.accumulate(caller.turn_frames))  # frames up to the end of each stretch

    def speaking(self, t_s: float) -> bool:
        """Whether the model speaks at that age of the session, the beginning of one of its frames."""
        frame = round((t_s - self._age_s) / self._period_s)
        stretch = bisect_right(self._ends, frame)
        return min(stretch, len(self._ends) - 1) % 2 == 1

    def runs(self, age_s: float, period_s: float, frames: int) -> list[int]:
        """As recorded; `frames` of them at the most."""
        kept, left = [], frames
        for length in self._lengths:
            kept.append(min(length, left))
            left -= kept[-1]
            if left <= 0:
                break
        return kept
