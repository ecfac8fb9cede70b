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

from metronome_cli.backends.in_process.paced_session import Stream, Turns
from metronome_cli.backends.in_process.population import AudioSource
from metronome_cli.config.fields import StrictModel
from metronome_cli.load.arrivals import Arrival

MAX_FRAMES = 10**9
Seconds = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1e9)]
Whole = Annotated[int, Field(strict=True, ge=0, le=MAX_FRAMES)]
Text = Annotated[str, Field(strict=True, max_length=4096)]
Ages = Literal["spread", "start", "end"]


class TraceTrial(StrictModel):
    """One run of sessions. `role` is the point's or the arm's name; `ages` and `memory_only` as in
    capacity/point.py."""

    trial: Whole = 0
    kind: Literal["point", "arm"] = "point"
    purpose: Text
    sessions: Annotated[int, Field(strict=True, ge=1, le=10**7)]
    ages: Ages = "start"
    memory_only: Annotated[bool, Field(strict=True)] = False
    length_s: Seconds | None = None


class TraceSession(StrictModel):
    """One caller. `start`: the sample of the audio loop at which his first frame begins.

    `speaks`: frames in which the model listens, then frames in which it speaks, and so on in turn; for the frames of
    the whole life.
    """

    session: Whole
    start_s: Seconds
    age_s: Seconds
    lifetime_s: Annotated[Seconds, Field(gt=0)]
    phase_s: Seconds
    loop_offset: Whole
    turn_frames: list[Whole]

    @property
    def arrival(self) -> Arrival:
        return Arrival(self.start_s, self.age_s, self.lifetime_s)


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


class LoopedAudio(AudioSource, Protocol):
    """Streams that are stretches of one loop of audio."""

    def start(self, index: int) -> int:
        """The sample of the loop at which session `index` begins."""

    def at(self, start: int) -> Stream:
        """The stream that begins at that sample."""


def trace_session(
    index: int, arrival: Arrival, streams: LoopedAudio, turns: Turns, period_s: float
) -> TraceSession:
    """What there is to know about a caller at the door. `lifetime_s` must be finite."""
    return TraceSession(
        session=index,
        start_s=arrival.at_s,
        age_s=arrival.age_s,
        lifetime_s=arrival.lifetime_s,
        phase_s=streams.phase_s(index),
        loop_offset=streams.start(index),
        turn_frames=turns.runs(arrival.age_s, period_s, math.floor(arrival.lifetime_s / period_s) + 1),
    )


class RecordedWorkload:
    """The audio and the phases of a recorded run, out of the same loop."""

    def __init__(self, run: RecordedTrial, loop: LoopedAudio) -> None:
        self._callers = run.callers
        self._loop = loop

    def stream(self, index: int) -> Stream:
        return self._loop.at(self.start(index))

    def phase_s(self, index: int) -> float:
        return self._callers[index].phase_s

    def start(self, index: int) -> int:
        return self._callers[index].loop_offset

    def at(self, start: int) -> Stream:
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
