"""Forecast for N sessions of a profile: when the pool is full, with which probability, and what would be safe.

Arithmetic only; nothing is measured. The interval is the 5th to 95th percentile of the fill time over random turns of
speech. It does not contain errors of the profile itself (its rates, its pool).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metronome_cli.config.cache_policy import window_blocks
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.first_passage import FirstPassage, Hazard, quantile
from metronome_cli.forecast.hazards import CONTEXT, POOL, decoder_growth, hazards
from metronome_cli.forecast.pool_fill import PoolFill
from metronome_cli.results.forecast_result import Interval

LOW, HIGH = 0.05, 0.95  # the 90 % interval
MOST_SESSIONS = 1_000_000
DEFAULT_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class PoolBudget:
    """The main pool. `blocks_for(n)`: blocks that n sessions find, which shrinks with n where their other
    state comes out of the same memory. `occupied` is rho0, the share taken from the start.
    """

    blocks_for: Callable[[int], int]
    block_tokens: int
    occupied: float = 0.0

    @classmethod
    def of(cls, profile: Profile) -> PoolBudget:
        """The profile's own pool. Raises UsageError when it has none."""
        pool = profile.kv_pool
        if pool is None:
            raise UsageError(
                f"profile {profile.name}: no pool, so nothing says when it is full",
                hint="give --device-memory (the device's) or --kv-pool (the KV pool's size)",
            )
        shape = profile.shape
        per_token, beside = shape.kv_bytes_per_token, shape.constant_bytes
        return cls(lambda sessions: pool.block_count(per_token, beside * sessions), pool.block_size)


@dataclass(frozen=True, slots=True)
class ForecastQuery:
    """N sessions of a length. `over_s`: their starts are spread over it; `confidence` is that of
    max_sessions.
    """

    profile: Profile
    sessions: int
    session_length_s: float
    budget: PoolBudget
    over_s: float = 0.0
    confidence: float = DEFAULT_CONFIDENCE

    @property
    def allowed(self) -> float:
        """The probability of an early end at which a number of sessions still counts as safe."""
        return 1 - self.confidence

    def hazards(self, sessions: int | None = None) -> list[Hazard]:
        """What can end a run of that many sessions (default: the question's)."""
        count = self.sessions if sessions is None else sessions
        blocks = self.budget.blocks_for(count)
        taken = math.ceil(self.budget.occupied * blocks)
        block_tokens = self.budget.block_tokens
        return hazards(self.profile, count, blocks, block_tokens, occupied=taken, over_s=self.over_s)


@dataclass(frozen=True, slots=True)
class HazardOutlook:
    """One hazard by itself."""

    name: str
    first_order_s: float | None
    t: Interval
    probability: float
    blocks: int | None = None
    settles_at: float | None = None  # occupancy once every window is full


@dataclass(frozen=True, slots=True)
class PoolForecast:
    """The answer. `t_sat` is the first of all hazards, and `first` its name; `probability` that one comes within
    the session length. `binding` is what does, "none" where that is less likely than the confidence allows.
    """

    t_sat: Interval
    first: str
    probability: float
    binding: str
    max_sessions: int | None
    max_binding: str  # what ends a run of one session more
    safe_window: int | None
    each: tuple[HazardOutlook, ...]


def forecast_pool(question: ForecastQuery) -> PoolForecast:
    """Compute the forecast. Raises UsageError if a single session needs more than the pool."""
    passage, length_s = FirstPassage(question.hazards()), question.session_length_s
    each = tuple(_one(hazard, length_s) for hazard in passage.hazards)
    span, probability = _first(passage, each), passage.by(length_s)
    median_s = math.inf if span.estimate is None else span.estimate
    most, max_binding = max_sessions_and_cause(question)
    return PoolForecast(
        t_sat=span,
        first="none" if span.estimate is None else passage.binding(median_s),
        probability=probability,
        binding="none" if probability <= question.allowed else passage.binding(min(length_s, median_s)),
        max_sessions=most,
        max_binding=max_binding,
        safe_window=safe_window(question),
        each=each,
    )


def collapse_probability(
    profile: Profile, sessions: int, session_length_s: float, *, over_s: float = 0.0, occupied: float = 0.0
) -> float:
    """P(t_sat < session length): the share of runs of `sessions` fresh sessions in which the pool (or a
    context or a stage's own cap) ends before the session does. Starts are spread over `over_s` seconds,
    `occupied` of the pool is taken from the start. Raises UsageError for a profile without a pool.
    """
    budget = PoolBudget.of(profile)
    budget = PoolBudget(budget.blocks_for, budget.block_tokens, occupied)
    return FirstPassage(ForecastQuery(profile, sessions, session_length_s, budget, over_s).hazards()).by(
        session_length_s
    )


def max_sessions(question: ForecastQuery) -> int | None:
    """Largest N that lives through the session length with the given confidence; None without a bound."""

    def survives(count: int) -> bool:
        by = FirstPassage(question.hazards(count)).by(question.session_length_s)
        return question.budget.blocks_for(count) > 0 and by <= question.allowed

    good, bad = 0, 1
    while survives(bad):
        good, bad = bad, bad * 2
        if bad > MOST_SESSIONS:
            return None
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if survives(middle) else (good, middle)
    return good


def max_sessions_and_cause(question: ForecastQuery) -> tuple[int | None, str]:
    """`max_sessions`, and what ends a run of one session more."""
    most = max_sessions(question)
    if most is None:
        return None, "none"
    return most, FirstPassage(question.hazards(most + 1)).binding(question.session_length_s)


def safe_window(question: ForecastQuery) -> int | None:
    """Largest W such that N windows of W positions, with their sinks and rounding, fit the pool; None if none
    does, or if a further stage ends the run all the same.

    Sinks are the policy's, else one block (the paper's choice). W never passes the trained context.
    """
    profile, size = question.profile, question.budget.block_tokens
    others = [hazard for hazard in question.hazards() if hazard.name not in (POOL, CONTEXT)]
    if FirstPassage(others).by(question.session_length_s) > question.allowed:
        return None
    spec = profile.policy_spec
    sinks = spec.sinks if spec.kind == "window" else size
    frame = math.ceil(decoder_growth(profile, size).most_per_frame)
    blocks = question.budget.blocks_for(question.sessions)
    each = math.floor(blocks * (1 - question.budget.occupied)) // question.sessions
    widest = (each - window_blocks(1, sinks, 0, size)) * size - frame + 1
    if profile.shape.context_length is not None:
        widest = min(widest, profile.shape.context_length - sinks)
    return widest if widest >= 1 and profile.shape.kv_bytes_per_token else None


def _one(hazard: Hazard, length_s: float) -> HazardOutlook:
    first = hazard.first_order_s
    fill = hazard if isinstance(hazard, PoolFill) else None
    return HazardOutlook(
        name=hazard.name,
        first_order_s=None if math.isinf(first) else first,
        t=_span(lambda share: quantile(hazard.by, share, first)),
        probability=hazard.by(length_s),
        blocks=fill.total_blocks if fill else None,
        settles_at=fill.settles_at if fill else None,
    )


def _first(passage: FirstPassage, each: Sequence[HazardOutlook]) -> Interval:
    """The first of all, found from where each one lies by itself."""

    def earliest(pick: Callable[[Interval], float | None]) -> float:
        return min((t for t in (pick(one.t) for one in each) if t is not None), default=math.inf)

    return Interval(
        estimate=passage.quantile(0.5, earliest(lambda span: span.estimate)),
        low=passage.quantile(LOW, earliest(lambda span: span.low)),
        high=passage.quantile(HIGH, earliest(lambda span: span.high)),
    )


def _span(at: Callable[[float], float | None]) -> Interval:
    return Interval(estimate=at(0.5), low=at(LOW), high=at(HIGH))
