"""Load traces: start, age, lifetime, audio and turns of every session of a trial, for replay.

A trace holds the load only, never the system's response to it. It includes rejected sessions, and each session has its
full planned lifetime. So the same load can be replayed on an engine that is slower or faster, rejects more or fewer
sessions, or ends them earlier.

A trial is a `TraceTrial`, one `TraceSession` per session, and a `TraceTrialEnd` with the trial's last time.
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
    """Head of one recorded trial. `purpose` is the trial's or the policy's name; `ages`, `memory_only` as in
    `TrialPlan`."""

    trial: Whole = 0
    kind: Literal["trial", "policy_run"] = "trial"
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
    """End of a recorded trial: its clock, in seconds."""

    trial_end: Whole
    at_s: Seconds


@dataclass(frozen=True, slots=True)
class RecordedTrial:
    """One trial that was recorded to its end."""

    head: TraceTrial
    sessions: Sequence[TraceSession]
    end_s: float


class TraceRecorder(Protocol):
    """Records the load of trials. A failure to record never raises."""

    def begin(self, head: TraceTrial) -> Callable[[TraceSession], None] | None:
        """Start a trial. Returns the function that records its sessions; None if nothing is recorded."""

    def end(self, at_s: float) -> None:
        """End the trial at `at_s` seconds of its clock."""


class NoRecorder:
    """Recorder that records nothing."""

    def begin(self, head: TraceTrial) -> None:
        return None

    def end(self, at_s: float) -> None: ...


class LoopedAudio(Protocol):
    """Distinct audio and a distinct phase for each session, all from one audio loop."""

    def stream(self, index: int) -> AudioStream:
        """The audio of session `index`."""

    def phase_s(self, index: int) -> float:
        """Offset of the session's frames within the period, seconds."""

    def start(self, index: int) -> int:
        """Return the sample of the loop at which session `index` begins."""

    def at(self, start: int) -> AudioStream:
        """Return the stream that begins at sample `start`."""


def trace_session(
    session: SessionSpec, audio: LoopedAudio, turns: TurnSchedule, period_s: float
) -> TraceSession:
    """Return the load trace entry of a session, whose lifetime must be finite."""
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
    """Audio and phases of a recorded trial, from the same audio loop."""

    def __init__(self, run: RecordedTrial, loop: LoopedAudio) -> None:
        self._sessions = run.sessions
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
    """Turns of one recorded session, per frame. After the last recorded frame the state does not change."""

    def __init__(self, session: TraceSession, period_s: float) -> None:
        self._age_s = session.age_s
        self._period_s = period_s
        self._lengths = session.turn_frames
        self._ends = list(itertools.accumulate(session.turn_frames))  # frames up to the end of each stretch

    def speaking(self, t_s: float) -> bool:
        """Return whether the model speaks at session age `t_s`, the start of a frame."""
        frame = round((t_s - self._age_s) / self._period_s)
        stretch = bisect_right(self._ends, frame)
        return min(stretch, len(self._ends) - 1) % 2 == 1

    def runs(self, age_s: float, period_s: float, frames: int) -> list[int]:
        """Return the recorded turn lengths, cut to `frames` frames."""
        kept, left = [], frames
        for length in self._lengths:
            kept.append(min(length, left))
            left -= kept[-1]
            if left <= 0:
                break
        return kept
