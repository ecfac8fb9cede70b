"""Compares cache policies under the same admission controller.

Under a bounded policy the controller converges; under an unbounded one it admits more sessions than the KV pool can
hold. Sessions arrive at a steady rate, each for the session length. Admission is AIMD on frame latency; the guarded
policy run also forecasts the pool. A session that is not admitted is rejected. A policy run ends when the last admitted
session would have finished.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metronome_cli.capacity.aimd import AimdController, AimdGains
from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.memory_guard import ActiveSession, BlockGrowth, MemoryGuard
from metronome_cli.capacity.offered_load import OfferedLoad
from metronome_cli.capacity.trial import Trial, TrialOutcome
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.formatting import plural
from metronome_cli.core.quantities import format_duration
from metronome_cli.core.session import SessionSpec
from metronome_cli.core.types import EndReason
from metronome_cli.forecast.speaking_time import spoken_moments
from metronome_cli.load.arrivals import ramp
from metronome_cli.load.trace import RecordedTrial, TraceTrial
from metronome_cli.load.turn_taking import TurnTakingProcess
from metronome_cli.measure.recorder import Counts
from metronome_cli.results.policy_runs import PolicyRun

LOST: tuple[EndReason, ...] = ("context_limit", "rejected", "fell_behind", "engine_error", "completed_silent")


@dataclass(frozen=True, slots=True)
class PolicyVariant:
    """A cache policy, and whether the memory guard controls admission."""

    name: str
    policy: CachePolicySpec
    guard: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """Offered load: `sessions` at `rate_per_s`, each for the session length; or those of a recorded policy run."""

    sessions: int
    rate_per_s: float
    recorded: RecordedTrial | None = None

    def arrivals(self, session_length_s: float) -> Iterable[SessionSpec]:
        """Return the sessions in order of time."""
        if self.recorded is not None:
            return [session.spec for session in self.recorded.sessions]
        return ramp(self.sessions, self.rate_per_s, session_length_s)

    def length_s(self, session_length_s: float) -> float:
        """Return the latest end of a policy run, s."""
        recorded = None if self.recorded is None else self.recorded.head.length_s
        return session_length_s + self.sessions / self.rate_per_s if recorded is None else recorded

    def __str__(self) -> str:
        how = f"at {self.rate_per_s:g}/s" if self.recorded is None else "as recorded"
        return f"{plural(self.sessions, 'session')} {how}"


# Open sessions stay, so an overshoot stays too: a lower target and a smaller increase than in a search.
ADMISSION_GAINS = AimdGains(target=0.5, increase=2.0, window_s=1.0, slow_start=1.0)

UNBOUNDED = PolicyVariant("unbounded", CachePolicySpec("unbounded"))
GUARDED = PolicyVariant("unbounded, memory guard", CachePolicySpec("unbounded"), guard=True)


def default_variants(bounded: CachePolicySpec) -> tuple[PolicyVariant, ...]:
    """Bounded, unbounded, and unbounded with the guard."""
    return PolicyVariant("bounded", bounded), UNBOUNDED, GUARDED


def compare_policies(
    context: TrialContext,
    variants: Sequence[PolicyVariant],
    offer: Offer,
    gains: AimdGains,
    into: list[PolicyRun],
) -> None:
    """Every variant on a fresh engine under the same offered load; each is added to `into` when it is done."""
    for index, variant in enumerate(variants):
        context.progress.span(0.05 + 0.95 * index / len(variants), 0.05 + 0.95 * (index + 1) / len(variants))
        _run_variant(context.under(str(variant.policy)), variant, offer, gains, into)
        if context.stop():
            break


class AdmissionControl:
    """Implements `Admission`: AIMD on frame latency, and a forecast of the pool's use with a guard."""

    def __init__(
        self, context: TrialContext, variant: PolicyVariant, gains: AimdGains, total_blocks: int
    ) -> None:
        self.window_s = gains.window_s
        self.guard = MemoryGuard(block_growth(context), total_blocks) if variant.guard else None
        self._controller = AimdController(gains, context.deadline_ms)
        self._quantile = gains.quantile
        self._name = variant.name
        self._observer = context.observer

    @property
    def session_limit(self) -> float:
        return self._controller.cap

    def admits(self, session: SessionSpec, load: OfferedLoad) -> bool:
        if len(load) >= int(self._controller.cap):
            return False
        pool = load.run.stats().pool
        if self.guard is None or pool is None:
            return True
        now_s = load.run.clock.now()
        open_ = [_active(state.spec, now_s) for state in load.recorder.active.values()]
        return self.guard.admits(open_, _active(session, session.start_s), pool.used_blocks)

    def after_window(self, counts: Counts, load: OfferedLoad) -> None:
        latency_ms = counts.latency.percentile(self._quantile)
        decision = self._controller.update(latency_ms, counts.misses > 0, len(load))
        data = {
            "policy_run": self._name,
            "t_s": load.run.clock.now(),
            "session_limit": decision.cap,
            "action": decision.action,
        }
        self._observer.event("admission", data)


def _active(session: SessionSpec, now_s: float) -> ActiveSession:
    """A session as the memory guard sees it at that instant."""
    return ActiveSession(now_s - session.start_s + session.age_s, session.age_s + session.lifetime_s)


def _run_variant(
    context: TrialContext, variant: PolicyVariant, offer: Offer, gains: AimdGains, into: list[PolicyRun]
) -> None:
    """One variant, added to `into`; if the engine fails, with what was seen until then. Raises EngineError after it."""
    length_s, demand = offer.length_s(context.session_length_s), context.kv_demand()
    total_blocks = demand.total if demand is not None else 0
    admission = AdmissionControl(context, variant, gains, total_blocks)
    trial = Trial(
        context,
        TrialPlan(offer.sessions, variant.name, ages="start", length_s=length_s, until="end"),
        admission,
        sessions=list(offer.arrivals(context.session_length_s)),
        slots=min(offer.sessions, context.max_sessions),
        head=TraceTrial(kind="policy_run", purpose=variant.name, sessions=offer.sessions, length_s=length_s),
        detail=str(offer),
    )
    outcome = trial.measure()
    into.append(_policy_run(context, variant, admission, outcome, total_blocks))
    context.observer.event("policy_run", into[-1].model_dump(mode="json"))
    if outcome.failure is not None:
        raise outcome.failure


def _policy_run(
    context: TrialContext,
    variant: PolicyVariant,
    admission: AdmissionControl,
    outcome: TrialOutcome,
    total_blocks: int,
) -> PolicyRun:
    result = outcome.result
    windows = result.windows
    middle = [window.sessions for window in windows[len(windows) // 3 : 2 * len(windows) // 3]]
    return PolicyRun(
        name=variant.name,
        policy=str(variant.policy),
        admission_control="memory" if variant.guard else None,
        mean_sessions_mid_run=statistics.fmean(middle) if middle else None,
        collapsed=result.collapse is not None,
        collapse=result.collapse,
        sessions_lost=sum(result.sessions_ended_early.get(reason, 0) for reason in LOST),
        occupancy_max=result.occupancy_max,
        filled_share=result.occupancy_max if variant.guard else None,
        objectives=result.objectives,
        load_generator_late=outcome.lateness,
        no_admission_reason=_no_admission_reason(context, admission, outcome, total_blocks),
        windows=windows,
        windows_merged=result.windows_merged,
    )


def _no_admission_reason(
    context: TrialContext, admission: AdmissionControl, outcome: TrialOutcome, total_blocks: int
) -> str:
    """What one session needs against what the pool has, if the guard admitted none; empty otherwise."""
    if admission.guard is None or outcome.evidence.total.frames:
        return ""
    length_s = context.session_length_s
    need = math.ceil(admission.guard.peak_blocks([ActiveSession(0.0, length_s)], 0.0))
    if need <= total_blocks:
        return ""
    return (
        f"no session is admitted: one session may need {need:,} blocks by the end of its {format_duration(length_s)}, "
        f"and the pool has {total_blocks:,}"
    )


def block_growth(context: TrialContext) -> BlockGrowth:
    """Mean and variance of one session's blocks under the profile's turn-taking (forecast/speaking_time.py).

    Half a block of rounding is added to the mean.
    """
    profile = context.profile
    assert profile.kv_pool is not None
    per_block, period_s, tokens = profile.kv_pool.block_size, profile.frame.period_s, profile.tokens
    swing = (tokens.per_frame(True) - tokens.per_frame(False)) / per_block  # blocks a frame
    process = TurnTakingProcess(profile.turn_taking.speaking_share, profile.turn_taking.mean_turn)

    def mean(age_s: float) -> float:
        return profile.policy_spec.resident_tokens(profile.positions_at(age_s)) / per_block + 0.5

    def variance(span_s: float) -> float:
        return swing**2 * spoken_moments(process, period_s, math.ceil(span_s / period_s))[1]

    return BlockGrowth(mean, variance)
