"""One point: N sessions on a fresh engine, driven until the verdict is settled, judged.

Warm-up is left out: the first steps of a fresh engine pay for allocations that no later one pays for. Then windows
are measured until every objective is proved or refuted, or the budget of steps is spent. A growing cache is
followed through the whole session length instead, since it is tomorrow's step that fails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from metronome_cli.capacity.counted import collapse_result, trial_counts
from metronome_cli.capacity.feeder import Feeder
from metronome_cli.capacity.lab import Lab
from metronome_cli.capacity.progress import PhaseProgress, steps_done, time_done
from metronome_cli.capacity.windows import WindowReporter
from metronome_cli.core.errors import DeviceMemoryError, EngineError
from metronome_cli.core.formatting import format_time, plural
from metronome_cli.core.types import SessionRefused
from metronome_cli.load.arrivals import Arrival, at_once, spread_ages
from metronome_cli.load.trace import Ages, TraceTrial
from metronome_cli.measure.judge import (
    Judgement,
    TrialEvidence,
    drift_reason,
    judge,
    lateness_reason,
    overall_verdict,
    stall_reason,
    without_timing_verdicts,
)
from metronome_cli.measure.silence import SilenceDetector, silence_timeout_s
from metronome_cli.results.capacity_result import LimitingFactor, TrialEnd, TrialResult
from metronome_cli.results.measured import Collapse

WARM_UP_STEPS = 12
FAIR_TRIAL_STEPS = 150  # before a point is given up: enough to refute one that is plainly too much
OLD_SHARE = 0.05  # of a bar: showing, after all else, that everybody's cache fits to its end
WINDOW_S = 1.0  # or twelve periods, whichever is longer
BINDS: dict[str, LimitingFactor] = {
    "empty_frames": "empty_frames",
    "occupancy": "memory",
}  # other metrics: the deadline


@dataclass(frozen=True, slots=True)
class PointPlan:
    """What to run. `ages`: sessions spread over the session length, all new, or all living their last `length_s`.

    `max_steps` bounds the measured steps (None: no bound), `length_s` the run's clock (None: until settled).
    `settle_early`: stop as soon as the verdict is known. `memory_only`: asks whether everybody's cache fits,
    not for the
    steps that latency would need. `look`: a full pool ends it at once, since it only says where to look next.
    """

    sessions: int
    role: str
    ages: Ages = "spread"
    max_steps: int | None = None
    length_s: float | None = None
    settle_early: bool = True
    memory_only: bool = False
    look: bool = False

    @property
    def head(self) -> TraceTrial:
        """The run as a recorded load names it."""
        return TraceTrial(
            purpose=self.role, sessions=self.sessions, ages=self.ages, memory_only=self.memory_only
        )


def memory_plan(lab: Lab, sessions: int) -> PointPlan:
    """The last two dozen periods of everybody's life: every window is full at once."""
    length_s = min(lab.session_length_s, 2 * WARM_UP_STEPS * lab.period_s)
    return PointPlan(sessions, "memory", ages="end", length_s=length_s, memory_only=True)


class PointRun:
    """Runs one plan and makes a report point of it."""

    def __init__(self, lab: Lab, plan: PointPlan, seats: int | None = None) -> None:
        self.lab = lab
        self.plan = plan
        self.driver = lab.driver(seats or plan.sessions, plan.head)
        self.feeder = Feeder(self.driver, self._arrivals())
        self.watch = WindowReporter(lab, self.driver, plan.role, plural(plan.sessions, "session"))
        self.window_s = max(WINDOW_S, 12 * lab.period_s)
        self._late_refused = 0
        self._replaced = 0
        self.collapse: Collapse | None = None
        self.promising = False  # nothing seen against it, however few steps there were
        self._silence: SilenceDetector | None = None

    def run(self, into: list[TrialResult]) -> TrialResult:
        """The point, added to `into` as well; when the engine fails, with what was measured until then.

        Raises EngineError after that, except where device memory ran out: fewer sessions may fit.
        """
        failure: EngineError | None = None
        try:
            self._drive()
        except EngineError as error:
            failure = error
        self.lab.recorder.end(min(self.driver.clock.now(), self.plan.length_s or math.inf))
        point = self._point(failure)
        into.append(point)
        self.lab.observer.event("trial", point.model_dump(mode="json"))
        if failure is not None and not isinstance(failure, DeviceMemoryError):
            raise failure
        return point

    def _drive(self) -> None:
        self.feeder.seat_first()
        self._warm_up()
        self._silence = SilenceDetector(self.driver.ledger, silence_timeout_s(self.lab.period_s))
        while not self.lab.stop() and not self._over():
            self.feeder.run_until(self._window_end_s())
            self.watch.close_window(self._done())
            self._look_for_collapse()
            self._top_up()  # before it is asked whether anybody is left

    def _window_end_s(self) -> float:
        ahead = self.driver.clock.now() + self.window_s
        return ahead if self.plan.length_s is None else min(ahead, self.plan.length_s)

    def _arrivals(self) -> Sequence[Arrival]:
        length_s, count = self.lab.session_length_s, self.plan.sessions
        if self.plan.ages == "spread":
            return list(at_once(spread_ages(count, length_s), length_s))
        last_s = (
            self.plan.length_s if self.plan.ages == "end" and self.plan.length_s is not None else length_s
        )
        return list(at_once([max(0.0, length_s - last_s)] * count, length_s))

    def _top_up(self) -> None:
        """Who has lived the session length is followed by a newcomer, where ages are spread."""
        if self.plan.ages != "spread":
            return
        now = self.driver.clock.now()
        for _ in range(self.driver.population.ended["completed"] - self._replaced):
            self._replaced += 1
            try:
                self.driver.seat(now, 0.0, self.lab.session_length_s)
            except SessionRefused:
                self._late_refused += 1

    @property
    def refused(self) -> int:
        """Callers that the engine turned away."""
        return self.feeder.refused + self._late_refused

    def _warm_up(self) -> None:
        driver = self.driver
        until = driver.clock.now()
        while driver.ledger.total.steps < WARM_UP_STEPS and len(driver.population) and not self.lab.stop():
            until += self.lab.period_s
            self.feeder.run_until(until)
        left_out = driver.pool_full_s is None and not driver.lost_beat and not driver.population.ended
        self.watch.close_window(self._done(), warm_up=left_out)
        if left_out:
            fresh = self.lab.ledger()
            fresh.still_s = driver.ledger.still_s  # whose backlog is still being worked off
            driver.ledger = fresh

    def _over(self) -> bool:
        total, plan, driver = self.driver.ledger.total, self.plan, self.driver
        deserted = not len(driver.population) and self.feeder.next_s == math.inf
        if deserted or (plan.settle_early and (self._lost_too_many() or self.spoilt)):
            return True
        if plan.length_s is not None and driver.clock.now() >= plan.length_s:
            return True
        if driver.pool_full_s is not None:
            return self.plan.look or self._seen_enough_of_a_full_pool()
        if plan.max_steps is not None and total.steps >= plan.max_steps:
            return True
        return plan.settle_early and (self._settled() or self._hopeless())

    @property
    def spoilt(self) -> bool:
        """Whether the generator stalled: no time that was measured since says anything of the engine."""
        return stall_reason(self.driver.ledger) is not None

    def _settled(self) -> bool:
        judgements = self._judgements()
        if any(j.verdict == "fail" for j in judgements):
            return True
        enough = self.driver.ledger.total.steps >= self.lab.steps_needed
        return enough and self.plan.length_s is None and all(j.verdict == "pass" for j in judgements)

    def _hopeless(self) -> bool:
        """So many bad steps that the budget no longer holds the good ones that would make up for them."""
        plan, steps = self.plan, self.driver.ledger.total.steps
        if plan.max_steps is None or steps < FAIR_TRIAL_STEPS or plan.max_steps < self.lab.steps_needed:
            return False
        return any(j.bad_steps and steps + j.steps_missing > plan.max_steps for j in self._judgements())

    def _lost_too_many(self) -> bool:
        """Sessions that lost the beat end a point, unless an objective says how many may."""
        return self.driver.lost_beat > 0 and not any(o.metric == "fell_behind" for o in self.lab.objectives)

    def _seen_enough_of_a_full_pool(self) -> bool:
        """Three times the patience: the collapse is declared, and shown not to recover by itself."""
        assert self.driver.pool_full_s is not None
        return self.driver.clock.now() - self.driver.pool_full_s > 3 * silence_timeout_s(self.lab.period_s)

    def _done(self) -> PhaseProgress:
        plan, steps = self.plan, self.driver.ledger.total.steps
        if plan.length_s is not None:
            done = time_done(self.driver.clock.now(), plan.length_s)
            return replace(done, share=1 - OLD_SHARE * (1 - done.share)) if plan.memory_only else done
        needed = steps + max((j.steps_missing for j in self._judgements()), default=0)
        done = steps_done(steps, min(needed, plan.max_steps or needed))
        return replace(done, share=done.share * (1 - OLD_SHARE))  # what comes after it

    def _look_for_collapse(self) -> None:
        assert self._silence is not None
        driver = self.driver
        if self.collapse is None and self._silence.collapsed(driver.clock.now()):
            self.collapse = collapse_result(driver)
            self.lab.observer.event("collapse", self.collapse.model_dump())

    def _judgements(self) -> list[Judgement]:
        evidence = TrialEvidence(self.driver.ledger, self.driver.occupancy_max, self.driver.lost_beat)
        return [judge(objective, evidence, self.lab.confidence) for objective in self.lab.objectives]

    def _point(self, failure: EngineError | None) -> TrialResult:
        ledger, driver = self.driver.ledger, self.driver
        judgements = self._judgements()
        late = lateness_reason(ledger)
        unsteady = drift_reason(ledger) if self.plan.ages == "spread" else None
        verdict, reason = overall_verdict(judgements, unsteady, late)
        ended_by, binding = self._classify(judgements, late)
        if ended_by in ("pool_full", "context_limit", "rejected"):
            verdict, reason = "fail", self._memory_reason(ended_by)
        elif self._lost_too_many() and not late:
            verdict, reason = "fail", f"{plural(driver.lost_beat, 'session')} lost the beat"
        elif self.plan.memory_only and verdict == "inconclusive" and ledger.total.steps and not late:
            verdict, reason = "pass", "every session's cache fitted to its end"
        if failure is not None:
            verdict, reason, ended_by = "fail", failure.message, "backend_error"
            binding = "memory" if isinstance(failure, DeviceMemoryError) else "none"
        elif self.lab.stop():
            ended_by = "interrupted"
            if verdict == "pass":
                verdict, reason = "inconclusive", "interrupted"
        self.promising = verdict != "fail" and all(j.promising for j in judgements)
        return TrialResult(
            **trial_counts(driver, self.watch, without_timing_verdicts(judgements, late)),
            sessions=self.plan.sessions,
            verdict=verdict,
            reason=reason,
            limited_by="none" if verdict == "pass" else binding,
            ended_by=ended_by,
            purpose=self.plan.role,
            policy=self.lab.profile.policy,
            occupancy_max=driver.occupancy_max,
            stages_ms=ledger.total.stages_ms(),
            sessions_ended_early={str(k): n for k, n in driver.population.ended.items() if k != "completed"},
            preemptions=driver.preemptions,
            recomputed_tokens=driver.recomputed_tokens,
            collapse=self.collapse,
        )

    def _classify(self, judgements: Sequence[Judgement], late: str | None) -> tuple[TrialEnd, LimitingFactor]:
        ended = self.driver.population.ended
        if ended["rejected"] or self.refused:
            return "rejected", "memory"
        if self.driver.pool_full_s is not None:
            return "pool_full", "memory"
        if ended["context_limit"]:
            return "context_limit", "context_length"
        if late:
            return "load_generator", "load_generator"
        if self._lost_too_many():
            return "objective_failed", "deadline"
        failed = [j.metric for j in judgements if j.verdict == "fail"]
        if failed:
            binds: list[LimitingFactor] = [BINDS.get(metric, "deadline") for metric in failed]
            return "objective_failed", binds[0]
        return "completed", "none"

    def _memory_reason(self, ended_by: TrialEnd) -> str:
        driver, ended = self.driver, self.driver.population.ended
        if ended_by == "context_limit":
            reached = plural(ended["context_limit"], "session")
            return f"{reached} reached the model's context limit, the first one at {format_time(driver.context_s)}"
        if ended_by == "rejected":
            refused = self.refused + ended["rejected"]
            return f"{plural(refused, 'session')} {'was' if refused == 1 else 'were'} refused: no room in the KV pool"
        full = f"the {driver.full_pool} pool was full at {format_time(driver.pool_full_s)}"
        if self.collapse is not None:
            return f"{full}; every session fell silent"
        return f"{full}: {plural(driver.preemptions, 'preemption')}" if driver.preemptions else full
