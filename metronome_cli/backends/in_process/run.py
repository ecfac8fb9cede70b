"""A trial on an engine in this process: due frames in batches, earliest deadline first.

Batching `continuous`: a step starts as soon as a frame is due and takes every due frame, up to the maximum batch.
`periodic`: one batch per period, at multiples of it, as in the paper; sessions are aligned to them, so no frame waits.

A frame's latency runs from its planned due time to the end of the step that answered it. The generator's lateness is
the time between the instant at which a step could have begun (its first frame due, the step before it done) and
the instant at which it did; on the virtual clock it is 0 by construction. A step that begins late also delays the
following ones: a batch's delay is counted from the instant at which it would have begun without lateness. Known
error: reading the clock, well under a microsecond.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from metronome_cli.backends.interface import BackendStats, RunSetup
from metronome_cli.backends.step_engine import StepEngine
from metronome_cli.core.call_events import CallEvent, CallEventKind
from metronome_cli.core.clock import make_clock
from metronome_cli.core.session import (
    AudioStream,
    FrameBatch,
    FrameResult,
    SessionEnded,
    SessionSpec,
    SessionStarted,
    TurnSchedule,
)
from metronome_cli.core.types import EndReason, FrameInput, FrameOutput, PoolState, StepResult
from metronome_cli.measure.fine_occupancy import FineOccupancy


@dataclass(slots=True)
class PacedSession:
    """A session in a slot. `start_s` is planned: frame k is due at start + (k + 1) period, independent of earlier
    delays."""

    index: int
    slot: int
    start_s: float
    period_s: float
    age_s: float  # at the start
    end_s: float
    stream: AudioStream
    turns: TurnSchedule
    next_frame: int = 0
    answering: bool = False  # the model spoke in the last frame

    @property
    def due_s(self) -> float:
        """Time at which the last sample of the next unanswered frame arrives."""
        return self.start_s + (self.next_frame + 1) * self.period_s

    def backlog(self, now_s: float) -> int:
        """Return the number of frames that are due and unanswered."""
        return max(0, math.floor((now_s - self.due_s) / self.period_s + 1e-9) + 1)

    def model_speaks(self) -> bool:
        """Return True if the model speaks in the next frame."""
        return self.turns.speaking(self.age_s + self.next_frame * self.period_s)


class StepRun:
    """Implements `BackendRun` on a `StepEngine`."""

    def __init__(self, engine: StepEngine, setup: RunSetup) -> None:
        self.clock = make_clock(setup.clock)
        self.engine: StepEngine | None = engine
        self._setup = setup
        self._profile = setup.profile
        self._period_s = setup.profile.frame.period_s
        self._aligned = setup.batching == "periodic"
        self._sessions: dict[int, PacedSession] = {}  # by index, in order of opening
        self._queue: list[tuple[float, int]] = []  # (due, index)
        self._free_s = 0.0  # when the last step was done
        self._delay_s = 0.0  # delay that the generator has caused so far
        self._stats = _Stats(engine.pool(), self._period_s)

    def open(self, session: SessionSpec) -> None:
        clocked = time.perf_counter()
        try:
            slot = self._engine.open(session.age_s)
        finally:
            self.clock.spent(time.perf_counter() - clocked)
            self._free_s = self.clock.now()
        index, workload = session.index, self._setup.workload
        paced = PacedSession(
            index=index,
            slot=slot,
            start_s=self._first_sample_s(session),
            period_s=self._period_s,
            age_s=session.age_s,
            end_s=session.start_s + session.lifetime_s,
            stream=workload.audio.stream(index),
            turns=workload.turns(index),
        )
        self._sessions[index] = paced
        heapq.heappush(self._queue, (paced.due_s, index))
        self._setup.record(SessionStarted(index))

    @property
    def _engine(self) -> StepEngine:
        assert self.engine is not None, "the run is closed"
        return self.engine

    def _first_sample_s(self, session: SessionSpec) -> float:
        """Staggered: at the session's own phase. Aligned: at the next multiple of the period."""
        if self._aligned:
            return math.ceil(session.start_s / self._period_s - 1e-9) * self._period_s
        return session.start_s + self._setup.workload.audio.phase_s(session.index)

    def begin(self) -> None:
        self.clock.start()
        self._free_s = 0.0

    def run_until(self, t_s: float) -> None:
        while not self._setup.stop():
            begin_s = self._next_begin_s(self._free_s)
            if begin_s >= t_s:
                self.clock.wait_until(t_s, self._setup.stop)
                return
            self.clock.wait_until(begin_s, self._setup.stop)
            if not self._setup.stop():
                self._step(begin_s)

    def _next_due_s(self) -> float:
        """Return when the next frame is due; infinity without sessions."""
        while self._queue and self._queue[0][1] not in self._sessions:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else math.inf

    def _next_begin_s(self, free_s: float) -> float:
        """Return when the next step can begin if the engine is free at `free_s` and the generator is on time."""
        due_s = self._next_due_s()
        if self._aligned and due_s < math.inf:
            return math.ceil(max(due_s, free_s) / self._period_s - 1e-9) * self._period_s
        return max(due_s, free_s)

    def _take_due(self, now_s: float) -> list[PacedSession]:
        """Pop the sessions with a due frame, earliest first, up to the maximum batch."""
        due: list[PacedSession] = []
        while len(due) < self._profile.max_batch_size and self._next_due_s() <= now_s:
            due.append(self._sessions[heapq.heappop(self._queue)[1]])
        return due

    def _step(self, could_begin_s: float) -> None:
        undelayed_s = self._next_begin_s(self._free_s - self._delay_s)
        sessions = self._take_due(self.clock.now() + 1e-9)
        frames = [self._frame_of(session) for session in sessions]
        began_s = self.clock.now()
        late_s, self._delay_s = began_s - could_begin_s, began_s - undelayed_s
        clocked = time.perf_counter()
        result = self._engine.step(frames)
        measured_s = time.perf_counter() - clocked
        self.clock.spent(measured_s if result.compute_s is None else result.compute_s)
        self._free_s = self.clock.now()
        self._stats.add(result, self._free_s)
        self._record(sessions, result, late_s)

    def _frame_of(self, session: PacedSession) -> FrameInput:
        out = self._profile.tokens.decode
        tokens = out.speaking if session.model_speaks() else out.listening
        return FrameInput(session.slot, session.stream.frame(session.next_frame), tokens)

    def _record(self, sessions: Sequence[PacedSession], result: StepResult, late_s: float) -> None:
        outcomes = {outcome.slot: outcome for outcome in result.outcomes}
        answered = [(session, outcomes[session.slot]) for session in sessions]
        frames = [
            FrameResult(session.index, session.due_s, self._free_s, outcome.expected, outcome.delivered)
            for session, outcome in answered
        ]
        self._setup.record(FrameBatch(frames, late_s, self._delay_s, result.stages_s))
        for session, outcome in answered:
            self._let_hear(session, outcome)
        for session, outcome in answered:
            self._after_frame(session, outcome)

    def _let_hear(self, session: PacedSession, outcome: FrameOutput) -> None:
        """Play what the engine returns: a run of frames in which the model speaks is an answer, due with its first."""
        tell, now_s = self._tell_call, self._free_s
        speaks = session.model_speaks()
        if speaks and not session.answering:
            session.answering = True
            tell(session, session.due_s, CallEventKind.TURN, session.due_s)
            tell(session, now_s, CallEventKind.ANSWER_BEGAN)
        elif session.answering and not speaks:
            session.answering = False
            tell(session, now_s, CallEventKind.ANSWER_DONE)
        if speaks and outcome.delivered:
            tell(session, now_s, CallEventKind.SOUND, self._period_s)

    def _tell_call(self, session: PacedSession, at_s: float, kind: CallEventKind, value: float = 0.0) -> None:
        self._setup.record(CallEvent(session.index, at_s, kind, value))

    def _after_frame(self, session: PacedSession, outcome: FrameOutput) -> None:
        """Queue the session's next frame, or end it."""
        if outcome.ended is not None:
            self._forget(session, outcome.ended)
            return
        session.next_frame += 1
        heapq.heappush(self._queue, (session.due_s, session.index))
        if session.due_s > session.end_s:
            self._end(session, "completed_silent" if outcome.waiting else "completed")
        elif session.backlog(self._free_s) > self._profile.frame.max_backlog:
            self._end(session, "fell_behind")

    def _end(self, session: PacedSession, reason: EndReason) -> None:
        self._tell_call(session, self.clock.now(), CallEventKind.ENDED)
        self._engine.close(session.slot)
        self._forget(session, reason)

    def _forget(self, session: PacedSession, reason: EndReason) -> None:
        del self._sessions[session.index]
        now_s = self.clock.now()
        self._setup.record(SessionEnded(session.index, reason, at_s=now_s, limited_by="memory"))

    def close_newest(self, count: int) -> None:
        for session in list(self._sessions.values())[::-1][: max(0, count)]:
            self._end(session, "shed")

    def stats(self) -> BackendStats:
        if self.engine is not None:
            self._stats.pool = self.engine.pool()
        return self._stats.frozen()

    def close(self) -> None:
        self.stats()
        self.engine = None
        for session in list(self._sessions.values()):
            self._forget(session, "completed")


class _Stats:
    """State that the results of steps have shown so far."""

    def __init__(self, pool: PoolState, period_s: float) -> None:
        self._fine = FineOccupancy.of_period(period_s)
        self.pool = pool
        self._stage_occupancy: dict[str, float] = {}  # of further stages' pools, after the last step
        self._occupancy_max = 0.0
        self._pool_full_s: float | None = None
        self._full_pool = "KV"
        self._preemptions = 0
        self._recomputed_tokens = 0

    def add(self, result: StepResult, now_s: float) -> None:
        self._preemptions += result.preemptions
        self._recomputed_tokens += result.recomputed_tokens
        self._occupancy_max = max(self._occupancy_max, result.pool.occupancy)
        self._fine.add(now_s, result.pool.occupancy)
        self._stage_occupancy = {stage: pool.occupancy for stage, pool in result.other_pools.items()}
        full = _full_pool(result)
        if self._pool_full_s is None and full is not None:
            self._pool_full_s, self._full_pool = now_s, full

    def frozen(self) -> BackendStats:
        return BackendStats(
            pool=self.pool,
            stage_occupancy=dict(self._stage_occupancy),
            occupancy_max=self._occupancy_max,
            pool_full_s=self._pool_full_s,
            full_pool=self._full_pool,
            blocked=self._pool_full_s is not None,
            preemptions=self._preemptions,
            recomputed_tokens=self._recomputed_tokens,
            fine_occupancy=self._fine.points,
        )


def _full_pool(result: StepResult) -> str | None:
    """Return the name of the pool that lacked a block in this step: "KV" or a stage's name; None if none did."""
    elsewhere = [stage for stage, pool in result.other_pools.items() if pool.waiting]
    if elsewhere:
        return elsewhere[0]
    refused = any(outcome.ended == "rejected" for outcome in result.outcomes)
    return "KV" if result.pool.waiting > 0 or result.preemptions > 0 or refused else None
