"""One point: N sessions on a fresh engine, driven until the verdict is settled, judged.

Warm-up is left out: the first steps of a fresh engine pay for allocations that no later one pays for. Then windows
are measured until every objective is proved or refuted, or the budget of steps is spent. A growing cache is
followed through the whole session length instead, since it is tomorrow's step that fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from metronome_cli.errors import EngineError
from metronome_cli.load.arrivals import Arrival, at_once, spread_ages
from metronome_cli.load.driver import Driver
from metronome_cli.load.feeder import Feeder
from metronome_cli.measure.confidence import steps_needed
from metronome_cli.measure.judge import Evidence, Judgement, drifts, generator_late, judge, overall
from metronome_cli.measure.silence import SilenceWatch
from metronome_cli.report.model import Binding, Collapse, Ended, LatencyMs, ObjectiveResult, Point
from metronome_cli.run.lab import Lab
from metronome_cli.run.watch import Watch

WARM_UP_STEPS = 12
WINDOW_S = 1.0  # or twelve periods, whichever is longer
Ages = Literal["spread", "start", "end"]


@dataclass(frozen=True, slots=True)
class PointPlan:
    """What to run. `ages`: sessions spread over the session length, all new, or all about to end.

    `max_steps` bounds the measured steps (None: no bound), `length_s` the run's clock (None: until settled).
    """

    sessions: int
    role: str
    ages: Ages = "spread"
    max_steps: int | None = None
    length_s: float | None = None
    settle_early: bool = True  # stop as soon as the verdict is known


class PointRun:
    """Runs one plan and makes a report point of it."""

    def __init__(self, lab: Lab, plan: PointPlan) -> None:
        self.lab = lab
        self.plan = plan
        self.driver = lab.driver(plan.sessions)
        self.watch = Watch(lab, self.driver, plan.role, f"{plan.sessions} sessions")
        self.window_s = max(WINDOW_S, 12 * lab.period_s)
        self.refused = 0
        self.collapse: Collapse | None = None
        self._silence: SilenceWatch | None = None

    def run(self, into: list[Point]) -> Point:
        """The point, added to `into` as well; when the engine fails, with what was measured until then.

        Raises EngineError after that.
        """
        failure: EngineError | None = None
        try:
            self._drive()
        except EngineError as error:
            failure = error
        point = self._point(failure)
        into.append(point)
        self.lab.observer.event("point", point.model_dump(mode="json"))
        if failure is not None:
            raise failure
        return point

    def _drive(self) -> None:
        feeder = Feeder(self.driver, self._arrivals())
        feeder.seat_first()
        self.refused = feeder.refused
        self._warm_up()
        self._silence = SilenceWatch(self.driver.ledger, self._patience_s())
        while not self.lab.stop() and not self._over():
            self.driver.run_until(self.driver.clock.now() + self.window_s)
            self.watch.close_window(self._done())
            self._look_for_collapse()

    def _arrivals(self) -> Sequence[Arrival]:
        length, count = self.lab.session_length_s, self.plan.sessions
        if self.plan.ages == "start":
            return list(at_once([0.0] * count))
        if self.plan.ages == "end":
            return list(at_once([max(0.0, length - self._tail_s())] * count))
        return list(at_once(spread_ages(count, length)))

    def _tail_s(self) -> float:
        """How much of the sessions' end is lived through when ages are set to the end."""
        return self.plan.length_s or 10 * self.lab.period_s

    def _patience_s(self) -> float:
        return max(2.0, 10 * self.lab.period_s)

    def _warm_up(self) -> None:
        driver = self.driver
        until = driver.clock.now()
        while driver.ledger.total.steps < WARM_UP_STEPS and len(driver.population) and not self.lab.stop():
            until += self.lab.period_s
            driver.run_until(until)
        growing = driver.pool_full_s is not None
        if not growing:
            driver.ledger = self.lab.ledger()

    def _over(self) -> bool:
        total, plan = self.driver.ledger.total, self.plan
        if not len(self.driver.population) or (plan.settle_early and self.driver.lost_beat):
            return True
        if self.driver.pool_full_s is not None:
            return self._seen_enough_of_a_full_pool()
        if plan.length_s is not None and self.driver.clock.now() >= plan.length_s:
            return True
        if plan.max_steps is not None and total.steps >= plan.max_steps:
            return True
        if not plan.settle_early:
            return False
        judgements = self._judgements()
        if any(j.verdict == "fail" for j in judgements):
            return True
        enough = total.steps >= steps_needed(0.01, self.lab.confidence)
        return enough and plan.length_s is None and all(j.verdict == "pass" for j in judgements)

    def _seen_enough_of_a_full_pool(self) -> bool:
        """Three times the patience: the collapse is declared, and shown not to recover by itself."""
        assert self.driver.pool_full_s is not None
        return self.driver.clock.now() - self.driver.pool_full_s > 3 * self._patience_s()

    def _done(self) -> float:
        plan, total = self.plan, self.driver.ledger.total
        if plan.length_s is not None:
            return self.driver.clock.now() / plan.length_s
        missing = max((j.steps_missing for j in self._judgements()), default=0)
        return total.steps / max(1, total.steps + missing)

    def _look_for_collapse(self) -> None:
        assert self._silence is not None
        driver = self.driver
        if self.collapse is None and self._silence.collapsed(driver.clock.now()):
            pool = driver.population.target.pool()
            last = driver.ledger.last_output_s
            self.collapse = Collapse(
                t_s=driver.pool_full_s if driver.pool_full_s is not None else (last or 0.0),
                occupancy=pool.occupancy,
                running=pool.running,
                waiting=pool.waiting,
                last_output_t_s=last,
                last_output_frame=None if last is None else int(last / self.lab.period_s),
            )
            self.lab.observer.event("collapse", self.collapse.model_dump())

    def _judgements(self) -> list[Judgement]:
        evidence = Evidence(self.driver.ledger, self.driver.occupancy_max, self.driver.lost_beat)
        return [judge(objective, evidence, self.lab.confidence) for objective in self.lab.objectives]

    def _point(self, failure: EngineError | None) -> Point:
        ledger, driver = self.driver.ledger, self.driver
        judgements = self._judgements()
        late = generator_late(ledger)
        verdict, reason = overall(judgements, drifts(ledger), late)
        ended_by, binding = self._classify(judgements, late)
        if ended_by in ("pool_exhausted", "context_limit", "refused"):
            verdict, reason = "fail", self._memory_reason(ended_by)
        elif driver.lost_beat and not late:
            verdict, reason = "fail", f"{driver.lost_beat} sessions lost the beat"
        if failure is not None:
            verdict, reason, ended_by, binding = "fail", failure.message, "engine", "none"
        elif self.lab.stop():
            ended_by = "interrupted"
            if verdict == "pass":
                verdict, reason = "inconclusive", "interrupted"
        total = ledger.total
        return Point(
            sessions=self.plan.sessions,
            verdict=verdict,
            reason=reason,
            binding="none" if verdict == "pass" else binding,
            ended_by=ended_by,
            role=self.plan.role,
            policy=self.lab.profile.policy,
            frames=total.frames,
            steps=total.steps,
            misses=total.misses,
            missed_steps=total.missed_steps,
            worst_streak=ledger.worst_streak,
            lost_beat=driver.lost_beat,
            empty_frames=total.empty_frames,
            duration_s=driver.clock.now(),
            latency_ms=latency_of(driver),
            occupancy_max=driver.occupancy_max,
            pool_full_t_s=driver.pool_full_s,
            stages_ms=total.stages_ms(),
            ended_sessions={str(key): count for key, count in driver.population.ended.items()},
            preemptions=driver.preemptions,
            recomputed_tokens=driver.recomputed_tokens,
            generator_late_ms_p99=ledger.lateness.percentile(0.99),
            objectives=[result_of(j) for j in judgements],
            collapse=self.collapse,
            timeline=self.watch.timeline,
        )

    def _classify(self, judgements: Sequence[Judgement], late: str | None) -> tuple[Ended, Binding]:
        ended = self.driver.population.ended
        if ended["refused"] or self.refused:
            return "refused", "memory"
        if self.driver.pool_full_s is not None:
            return "pool_exhausted", "memory"
        if ended["context"]:
            return "context_limit", "context"
        if late:
            return "generator", "generator"
        if self.driver.lost_beat:
            return "deadline", "deadline"
        if any(j.verdict == "fail" for j in judgements):
            timing = any(j.verdict == "fail" and j.metric != "empty" for j in judgements)
            return "deadline", "deadline" if timing else "empty"
        return "complete", "none"

    def _memory_reason(self, ended_by: Ended) -> str:
        driver, ended = self.driver, self.driver.population.ended
        if ended_by == "context_limit":
            return f"{ended['context']} sessions reached the model's context limit before the session length"
        if ended_by == "refused":
            return f"{self.refused + ended['refused']} sessions were refused: no room in the KV pool"
        full = f"the KV pool was full at {driver.pool_full_s:.1f} s"
        if self.collapse is not None:
            return f"{full}; every session fell silent"
        return f"{full}: {driver.preemptions} preemptions" if driver.preemptions else full


def latency_of(driver: Driver) -> LatencyMs:
    """Frame latency percentiles of the whole ledger."""
    histogram = driver.ledger.total.latency
    return LatencyMs(
        p50=histogram.percentile(0.5),
        p90=histogram.percentile(0.9),
        p99=histogram.percentile(0.99),
        p999=histogram.percentile(0.999),
        max=histogram.max_ms,
    )


def result_of(judgement: Judgement) -> ObjectiveResult:
    """A judgement as the report has it."""
    return ObjectiveResult(
        objective=judgement.objective,
        verdict=judgement.verdict,
        measured=judgement.measured,
        limit=judgement.limit,
        unit=judgement.unit,
        confidence=judgement.confidence,
        reason=judgement.reason,
    )
