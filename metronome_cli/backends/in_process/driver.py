"""Drives a target on the beat.

Batching `continuous`: a step starts as soon as a frame is due and takes every due frame, earliest deadline first,
up to the maximum batch. `tick`: one batch a period, taken at its multiples, as in the paper; the population is
aligned to them, so that no frame waits for its tick.

A frame's latency runs from its planned due time to the end of the step that answered it. The driver's own
lateness is the time between the instant a step could have begun (its first frame due, the step before it done)
and the instant it did; on the virtual clock it is nil by construction. Known error: reading the clock, well under
a microsecond. A stretch in which this whole process stood still is told to the ledger, unless the clock is virtual
and the target states its step times.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Literal

from metronome_cli.backends.in_process.paced_session import PacedSession
from metronome_cli.backends.in_process.population import Population
from metronome_cli.core.clock import Clock
from metronome_cli.core.types import EndReason, FrameOutput, StepResult
from metronome_cli.load.arrivals import Arrival
from metronome_cli.measure.ledger import FrameRecord, Ledger
from metronome_cli.measure.stall import StallDetector, Standstill, Still

Batching = Literal["continuous", "periodic"]


class Driver:
    """One target, one population, one clock, one ledger."""

    def __init__(
        self,
        population: Population,
        clock: Clock,
        ledger: Ledger,
        *,
        batching: Batching = "continuous",
        stopped: Callable[[], bool] = lambda: False,
        pulse: StallDetector | Still | None = None,
    ) -> None:
        self.population = population
        self.clock = clock
        self.ledger = ledger
        self.stopped = stopped
        self.lost_beat = 0
        self.preemptions = 0
        self.recomputed_tokens = 0
        self.occupancy_max = 0.0
        self.pool_full_s: float | None = None  # when a session first found no block
        self.context_s: float | None = None  # when a session first filled the model's context
        self.full_pool = "KV"  # whose it was: the decoder's, or a further stage's
        self.stage_occupancy: dict[str, float] = {}  # of further stages' pools, after the last step
        self._batching = batching
        self._max_batch = population.profile.max_batch_size
        self._period_s = population.profile.frame.period_s
        self._free_s = 0.0  # when the last step was done
        self._standstill = Standstill(pulse)

    def run_until(self, instant_s: float) -> None:
        """Serve every frame that can begin before `instant_s`."""
        while not self.stopped():
            begin = self._next_begin()
            if begin >= instant_s:
                self.clock.wait_until(instant_s, self.stopped)
                return
            self.clock.wait_until(begin, self.stopped)
            if not self.stopped():
                self._step(begin)

    def seat(self, at_s: float, age_s: float = 0.0, lifetime_s: float = math.inf) -> None:
        """Open a session; the engine's time for it counts. Raises SlotRefused."""
        index = self.population.knock(Arrival(at_s, age_s, lifetime_s))
        clocked = time.perf_counter()
        try:
            self.population.open(at_s, age_s, lifetime_s, index)
        finally:
            self.clock.spent(time.perf_counter() - clocked)
            self._free_s = self.clock.now()

    def start(self) -> None:
        """Time 0 is now: what was opened before has cost nothing."""
        self.clock.start()
        self._free_s = 0.0

    def _next_begin(self) -> float:
        """When the next step can begin, were the generator never late."""
        due = self.population.next_due_s()
        if self._batching == "periodic" and due < math.inf:
            return math.ceil(max(due, self._free_s) / self._period_s - 1e-9) * self._period_s
        return max(due, self._free_s)

    def _step(self, could_begin_s: float) -> None:
        now = self.clock.now()
        sessions = self.population.take_due(now + 1e-9, self._max_batch)
        frames = [self.population.frame_of(session) for session in sessions]
        began = self.clock.now()
        clocked = time.perf_counter()
        result = self.population.target.step(frames)
        measured = time.perf_counter() - clocked
        self.clock.spent(measured if result.compute_s is None else result.compute_s)
        self._free_s = self.clock.now()
        if self.clock.name == "real" or result.compute_s is None:
            self._standstill.tell(self.ledger)
        self._record(sessions, result, late_s=began - could_begin_s)

    def _record(self, sessions: Sequence[PacedSession], result: StepResult, late_s: float) -> None:
        outcomes = {outcome.slot: outcome for outcome in result.outcomes}
        records = []
        for session in sessions:
            outcome = outcomes[session.slot]
            records.append(
                FrameRecord(session.index, session.due_s, self._free_s, outcome.expected, outcome.delivered)
            )
        self.ledger.add(records, result.stages_s, late_s)
        for session in sessions:
            self._settle(session, outcomes[session.slot])
        self.preemptions += result.preemptions
        self.recomputed_tokens += result.recomputed_tokens
        self.occupancy_max = max(self.occupancy_max, result.pool.occupancy)
        self.stage_occupancy = {stage: pool.occupancy for stage, pool in result.other_pools.items()}
        full = _full_pool(result)
        if self.pool_full_s is None and full is not None:
            self.pool_full_s, self.full_pool = self._free_s, full

    def _settle(self, session: PacedSession, outcome: FrameOutput) -> None:
        """What becomes of a session after one of its frames."""
        if outcome.ended is not None:
            if outcome.ended == "context_limit" and self.context_s is None:
                self.context_s = self._free_s
            self.population.forget(session, outcome.ended)
            self.ledger.forget(session.index)
            return
        self.population.answered(session)
        session.hear(outcome, self._free_s)
        if session.due_s > session.end_s:
            self._end(session, "completed_silent" if outcome.waiting or session.fell_silent else "completed")
        elif session.backlog(self._free_s) > self.population.profile.frame.max_backlog:
            self.lost_beat += 1
            self._end(session, "fell_behind")

    def _end(self, session: PacedSession, reason: EndReason) -> None:
        self.population.close(session, reason)
        self.ledger.forget(session.index)


def _full_pool(result: StepResult) -> str | None:
    """Whose pool had no block for a session that wanted one in this step: "KV", or a stage's name."""
    elsewhere = [stage for stage, pool in result.other_pools.items() if pool.waiting]
    if elsewhere:
        return elsewhere[0]
    refused = any(outcome.ended == "rejected" for outcome in result.outcomes)
    return "KV" if result.pool.waiting > 0 or result.preemptions > 0 or refused else None
