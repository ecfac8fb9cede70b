"""The same controller on different caches: it converges on one and over-admits into the wall on the other.

Callers arrive at a steady rate, each to stay for the session length; admission is AIMD on frame latency, and, in
the guarded arm, a forecast of the pool as well. Whoever is not admitted gets a clean rejection. An arm's time ends
when the last admitted caller would have finished.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from metronome_cli.capacity.aimd import AimdController, AimdGains
from metronome_cli.capacity.counted import collapse_result, objective_result
from metronome_cli.capacity.feeder import Feeder
from metronome_cli.capacity.lab import Lab
from metronome_cli.capacity.memory_guard import ActiveSession, BlockGrowth, MemoryGuard
from metronome_cli.capacity.progress import time_done
from metronome_cli.capacity.windows import WindowReporter
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.formatting import plural
from metronome_cli.core.quantities import format_duration
from metronome_cli.core.types import EndReason
from metronome_cli.forecast.speaking_time import spoken_moments
from metronome_cli.load.arrivals import Arrival, ramp
from metronome_cli.load.trace import RecordedTrial, TraceTrial
from metronome_cli.load.turn_taking import TurnTakingProcess
from metronome_cli.measure.judge import (
    Judgement,
    TrialEvidence,
    judge,
    lateness_reason,
    without_timing_verdicts,
)
from metronome_cli.measure.silence import SilenceDetector, silence_timeout_s
from metronome_cli.results.measured import Collapse
from metronome_cli.results.policy_runs import PolicyRun

LOST: tuple[EndReason, ...] = ("context_limit", "rejected", "fell_behind", "engine_error", "completed_silent")


@dataclass(frozen=True, slots=True)
class PolicyVariant:
    """One arm: a policy, and whether the memory guard stands at the door."""

    name: str
    policy: CachePolicySpec
    guard: bool = False


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """Who comes: `sessions` callers at `rate_per_s`, each for the session length; or those of a recorded arm."""

    sessions: int
    rate_per_s: float
    recorded: RecordedTrial | None = None

    def arrivals(self, session_length_s: float) -> Iterable[Arrival]:
        """In order of time."""
        if self.recorded is not None:
            return [caller.arrival for caller in self.recorded.callers]
        return ramp(self.sessions, self.rate_per_s, session_length_s)

    def length_s(self, session_length_s: float) -> float:
        """When an arm ends at the latest."""
        recorded = None if self.recorded is None else self.recorded.head.length_s
        return session_length_s + self.sessions / self.rate_per_s if recorded is None else recorded

    def __str__(self) -> str:
        how = f"at {self.rate_per_s:g}/s" if self.recorded is None else "as recorded"
        return f"{plural(self.sessions, 'caller')} {how}"


# Seated callers stay, so an overshoot stays too: a lower target and a smaller step than a search takes.
ADMISSION_GAINS = AimdGains(target=0.5, increase=2.0, window_s=1.0, slow_start=1.0)

UNBOUNDED = PolicyVariant("unbounded", CachePolicySpec("unbounded"))
GUARDED = PolicyVariant("unbounded, memory guard", CachePolicySpec("unbounded"), guard=True)


def default_variants(bounded: CachePolicySpec) -> tuple[PolicyVariant, ...]:
    """Bounded, unbounded, and unbounded with the guard."""
    return PolicyVariant("bounded", bounded), UNBOUNDED, GUARDED


def compare_policies(
    lab: Lab, arms: Sequence[PolicyVariant], offer: OfferedLoad, gains: AimdGains, into: list[PolicyRun]
) -> None:
    """Every arm on a fresh engine under the same offered load; each is added to `into` when it is done."""
    for index, arm in enumerate(arms):
        share = 0.05 + 0.95 * index / len(arms), 0.05 + 0.95 * (index + 1) / len(arms)
        profile = lab.profile.model_copy(update={"policy": str(arm.policy)})
        ArmRun(replace(lab, profile=profile, progress=share), arm, offer, gains).run(into)
        if lab.stop():
            break


class ArmRun:
    """One arm, window by window."""

    def __init__(self, lab: Lab, plan: PolicyVariant, offer: OfferedLoad, gains: AimdGains) -> None:
        self.lab = lab
        self.plan = plan
        self.length_s = offer.length_s(lab.session_length_s)
        self.gains = gains
        head = TraceTrial(kind="arm", purpose=plan.name, sessions=offer.sessions, length_s=self.length_s)
        self.driver = lab.driver(min(offer.sessions, lab.max_sessions), head)
        self.controller = AimdController(gains, lab.deadline_ms)
        self.feeder = Feeder(self.driver, offer.arrivals(lab.session_length_s), self._admits)
        self.watch = WindowReporter(lab, self.driver, plan.name, str(offer))
        self.collapse: Collapse | None = None
        self._guard = self._make_guard() if plan.guard else None

    def run(self, into: list[PolicyRun]) -> None:
        """The arm is added to `into`, when the engine fails with what was seen until then. Raises EngineError."""
        try:
            self._drive()
        finally:
            self.lab.recorder.end(min(self.driver.clock.now(), self.length_s))
            into.append(self._arm())
            self.lab.observer.event("policy_run", into[-1].model_dump(mode="json"))

    def _drive(self) -> None:
        silence = SilenceDetector(self.driver.ledger, silence_timeout_s(self.lab.period_s))
        clock = self.driver.clock
        self.feeder.seat_first()
        while clock.now() < self.length_s and not self.lab.stop() and not self._deserted():
            self.feeder.run_until(min(clock.now() + self.gains.window_s, self.length_s))
            self._control()
            if self.collapse is None and silence.collapsed(clock.now()):
                self.collapse = collapse_result(self.driver)
                self.lab.observer.event(
                    "collapse", {"policy_run": self.plan.name, **self.collapse.model_dump()}
                )

    def _deserted(self) -> bool:
        return (
            self.feeder.offered > 0 and not len(self.driver.population) and self.feeder.next_s > self.length_s
        )

    def _control(self) -> None:
        watch = self.watch
        watch.cap, watch.offered = self.controller.cap, self.feeder.offered
        watch.shed = self.feeder.rejected + self.feeder.refused
        tally, _ = watch.close_window(time_done(self.driver.clock.now(), self.length_s))
        seated = len(self.driver.population)
        quantile = tally.latency.percentile(self.gains.quantile)
        decision = self.controller.update(quantile, tally.misses > 0, seated)
        self.lab.observer.event(
            "admission",
            {
                "policy_run": self.plan.name,
                "t_s": self.driver.clock.now(),
                "session_limit": decision.cap,
                "action": decision.action,
            },
        )

    def _admits(self, arrival: Arrival) -> bool:
        if len(self.driver.population) >= int(self.controller.cap):
            return False
        if self._guard is None:
            return True
        now = self.driver.clock.now()
        seats = [
            ActiveSession(now - s.start_s + s.age_s, s.end_s - s.start_s + s.age_s)
            for s in self.driver.population.sessions()
        ]
        newcomer = ActiveSession(arrival.age_s, arrival.age_s + arrival.lifetime_s)
        return self._guard.admits(seats, newcomer, self.driver.population.target.pool().used_blocks)

    def _make_guard(self) -> MemoryGuard:
        target = self.driver.population.target
        return MemoryGuard(block_growth(self.lab), target.pool().total_blocks)

    def _why_nobody(self) -> str:
        """What one session needs against what the pool has, where the guard admitted nobody."""
        population = self.driver.population
        if self._guard is None or len(population) or population.ended:
            return ""
        length_s, pool = self.lab.session_length_s, population.target.pool().total_blocks
        need = math.ceil(self._guard.peak_blocks([ActiveSession(0.0, length_s)], 0.0))
        if need <= pool:
            return ""
        return (
            f"nobody is admitted: one session may need {need:,} blocks by the end of its {format_duration(length_s)}, "
            f"and the pool has {pool:,}"
        )

    def _arm(self) -> PolicyRun:
        timeline = self.watch.timeline
        evidence = TrialEvidence(self.driver.ledger, self.driver.occupancy_max, self.driver.lost_beat)
        settled = [p.sessions for p in timeline[len(timeline) // 3 : 2 * len(timeline) // 3]]
        population = self.driver.population
        silent = sum(session.fell_silent for session in population.sessions())
        return PolicyRun(
            name=self.plan.name,
            policy=str(self.plan.policy),
            admission_control="memory" if self.plan.guard else None,
            mean_sessions_mid_run=statistics.fmean(settled) if settled else None,
            collapsed=self.collapse is not None,
            collapse=self.collapse,
            sessions_lost=sum(population.ended[reason] for reason in LOST) + silent,
            occupancy_max=self.driver.occupancy_max,
            filled_share=self.driver.occupancy_max if self.plan.guard else None,
            objectives=[objective_result(judgement) for judgement in self._judged(evidence)],
            load_generator_late=lateness_reason(self.driver.ledger),
            no_admission_reason=self._why_nobody(),
            windows=timeline,
            windows_merged=self.watch.windows.each,
        )

    def _judged(self, evidence: TrialEvidence) -> list[Judgement]:
        judged = [judge(o, evidence, self.lab.confidence) for o in self.lab.objectives]
        return without_timing_verdicts(judged, lateness_reason(self.driver.ledger))


def block_growth(lab: Lab) -> BlockGrowth:
    """Mean and variance of one session's blocks under the profile's turn-taking (forecast/speaking_time.py).

    Half a block of rounding is added to the mean.
    """
    profile = lab.profile
    assert profile.kv_pool is not None
    per_block, period_s, tokens = profile.kv_pool.block_size, profile.frame.period_s, profile.tokens
    swing = (tokens.per_frame(True) - tokens.per_frame(False)) / per_block  # blocks a frame
    process = TurnTakingProcess(profile.turn_taking.speaking_share, profile.turn_taking.mean_turn)

    def mean(age_s: float) -> float:
        return profile.policy_spec.resident_tokens(profile.positions_at(age_s)) / per_block + 0.5

    def variance(span_s: float) -> float:
        return swing**2 * spoken_moments(process, period_s, math.ceil(span_s / period_s))[1]

    return BlockGrowth(mean, variance)
