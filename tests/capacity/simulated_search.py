"""The search on a simulated machine, whose clock is also the search's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from metronome_cli.capacity.queue_model import Stepping
from metronome_cli.capacity.samples import Samples
from metronome_cli.capacity.search import Outcome, Search, SearchState
from metronome_cli.capacity.time_budget import TimeBudget
from metronome_cli.capacity.trial_plan import TrialPlan, TrialPlans
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.measured import Window
from tests.capacity.simulated_machine import (
    PERIOD_MS,
    SHARE,
    Batch,
    Machine,
    SimulatedMachine,
)

NEEDED = 459  # batches without a late frame that prove p99 at 99 %
MEMORY_TRIAL_S = 0.5
WINDOW_S = 0.5  # of the ramp


@dataclass(frozen=True)
class _Evidence:
    batches: list[Batch]


@dataclass(frozen=True)
class _Outcome:
    result: TrialResult
    evidence: _Evidence
    stalled: bool = False
    slots: int | None = None


@dataclass(frozen=True)
class Searched:
    """What one search found, in how much time of the machine, by which trials."""

    found: SearchState
    took_s: float
    trials: list[TrialResult]


def search(machine: Machine, seed: int) -> Searched:
    """One search of the default length."""
    simulated, trials = SimulatedMachine(machine, seed), []

    def run_trial(plan: TrialPlan) -> Outcome:
        if plan.memory_only:
            simulated.now_s += MEMORY_TRIAL_S
            return cast(Outcome, _Outcome(TrialResult(sessions=plan.sessions, verdict="pass"), _Evidence([])))
        settle, most = plan.until == "settled", plan.max_batches or 10**6
        measured = simulated.trial(
            plan.sessions, plan.least_s, plan.length_s or math.inf, settle=settle, most=most
        )
        result = TrialResult(
            sessions=plan.sessions,
            verdict=measured.verdict,
            purpose=plan.purpose,
            limited_by="deadline" if measured.verdict == "fail" else "none",
            batches=len(measured.batches),
            late_batches=sum(batch.late > 0 for batch in measured.batches),
            duration_s=measured.took_s,
        )
        trials.append(result)
        return cast(Outcome, _Outcome(result, _Evidence(measured.batches)))

    searched = Search(
        run_trial,
        TrialPlans(600.0, PERIOD_MS / 1e3, grows=False, lives=False),
        [(PERIOD_MS, SHARE)],
        TimeBudget(0.0, PERIOD_MS / 1e3, None, now=lambda: simulated.now_s),
        ceiling=machine.ceiling,
        needed=NEEDED,
        ramp=_Ramp(simulated, machine.ceiling),
        stepping=Stepping(PERIOD_MS, 256),
    )
    found = searched.run()
    return Searched(found, simulated.now_s, trials)


class _Ramp:
    """Half as many sessions more every half second, until they come near the limit."""

    def __init__(self, simulated: SimulatedMachine, ceiling: int) -> None:
        self.simulated, self.ceiling = simulated, ceiling
        self.healthy, self.slots, self.samples = 0, None, list[Samples]()
        self.windows = list[Window]()

    def run(self) -> None:
        simulated, sessions = self.simulated, 4
        while True:
            sessions = min(sessions, self.ceiling)
            run = simulated.run(sessions)
            start_ms, batches = run.free_ms, []
            while run.free_ms < start_ms + WINDOW_S * 1e3:
                batches.append(run.step())
            self.samples.append(Samples.of(sessions, batches, simulated.now_s))
            simulated.now_s += (run.free_ms - start_ms) / 1e3  # a ramp keeps its engine
            worst = sorted(batch.worst_ms for batch in batches)
            if worst[int(0.95 * len(worst))] > 0.7 * PERIOD_MS or sessions >= self.ceiling:
                return
            self.healthy, sessions = sessions, math.ceil(1.5 * sessions)
