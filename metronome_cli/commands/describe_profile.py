"""What a profile means in memory and minutes: growth, limits, and how many sessions a device holds.

    growth of a store [bytes/s] = positions a second x KV bytes a position
    time to a limit [s]         = (limit - positions at the start) / positions a second
    sessions that fit           = those that live through `session_length_s`, as `metronome predict` says

where the pool is what a device's memory leaves (forecast/memory.py), or the profile's own. A session's cache is given
at its mean speech.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from metronome_cli.commands.predict.from_profile import ForecastPlan
from metronome_cli.config.cache_groups import describe_groups
from metronome_cli.config.model_shape import CacheStage
from metronome_cli.config.profile import Profile
from metronome_cli.forecast.hazards import decoder_growth
from metronome_cli.forecast.memory import DEFAULT_SHARE, profile_weights, state_outside, weights_known
from metronome_cli.forecast.pool_forecast import max_sessions_and_cause
from metronome_cli.results.profile_card import MemoryFit, MemoryRow, ProfileCard, RatesByState, StageCard


def profile_card(
    profile: Profile,
    memory: int | None = None,
    session_length_s: float | None = None,
    memory_share: float = DEFAULT_SHARE,
) -> ProfileCard:
    """`memory`: the device's, in bytes; without it the profile's own pool is filled, if it has one.

    Raises UsageError for memory that the weights alone fill, and for sessions shorter than a frame.
    """
    shape, tokens, period_s = profile.shape, profile.tokens, profile.frame.period_s
    length_s = session_length_s or profile.session_length
    rates = by_state(lambda speaking: tokens.per_frame(speaking) / period_s, profile)
    return ProfileCard(
        name=profile.name,
        title=profile.title,
        adapter=profile.adapter,
        verified=profile.verified,
        unverified=list(profile.unverified),
        policy=profile.policy,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        positions_per_s=rates,
        growth_bytes_per_s=_times(rates, shape.kv_bytes_per_token),
        context=shape.context_length,
        cache=describe_groups(profile.cache_groups),
        seconds_to_context=_until(shape.context_length - profile.prompt_tokens, rates)
        if shape.context_length
        else _until(0, _none()),
        cache_bytes_per_session=round(
            blocks_per_session(profile, length_s) * block_tokens(profile) * shape.kv_bytes_per_token
        ),
        state_bytes_per_session=state_outside(profile),
        weight_bytes=profile_weights(profile).size if weights_known(profile) else None,
        stages=[_stage(stage, profile) for stage in profile.stages],
        fit=_fit(profile, memory, length_s, memory_share),
    )


def by_state(figure: Callable[[bool], float], profile: Profile) -> RatesByState:
    """A figure in both states of the conversation, and its mean over the turns."""
    listening, speaking, share = figure(False), figure(True), profile.turn_taking.speaking_share
    return RatesByState(
        listening=listening, speaking=speaking, mean=share * speaking + (1 - share) * listening
    )


def block_tokens(profile: Profile) -> int:
    """Positions a block."""
    return profile.kv_pool.block_size if profile.kv_pool else 16


def blocks_per_session(profile: Profile, age_s: float) -> float:
    """Blocks of the main pool that a session of that age holds under the profile's policy, on average."""
    growth = decoder_growth(profile, block_tokens(profile))
    frames = math.floor(age_s / profile.frame.period_s + 1e-9)
    blocks = math.ceil((growth.head + frames * growth.mean_per_frame) / growth.block_tokens - 1e-9)
    settled = growth.settled()
    most = growth.blocks_at_most() if settled is None else settled.mean
    if most is None:
        return blocks
    return most if profile.policy_spec.kind == "ring" else min(blocks, most)


def _times(rates: RatesByState, size: int) -> RatesByState:
    return RatesByState(
        **{state: None if rate is None else rate * size for state, rate in rates.model_dump().items()}
    )


def _until(positions: int, rates: RatesByState) -> RatesByState:
    """Seconds to that many positions; null where nothing is added."""
    return RatesByState(
        **{state: positions / rate if rate else None for state, rate in rates.model_dump().items()}
    )


def _stage(stage: CacheStage, profile: Profile) -> StageCard:
    speed = stage.positions_per_s
    rates = by_state(lambda speaking: speed.speaking if speaking else speed.listening, profile)
    bounded = stage.limit is not None and stage.kind in ("paged", "ring")
    at_most = stage.state_bytes + (stage.limit or 0) * stage.kv_bytes_per_position if bounded else None
    grows = stage.kind in ("paged", "ring")
    return StageCard(
        name=stage.name,
        kind=stage.kind,
        kv_bytes_per_position=stage.kv_bytes_per_position,
        growth_bytes_per_s=_times(rates, stage.kv_bytes_per_position if stage.kind != "per_frame" else 0),
        limit=stage.limit,
        seconds_to_limit=_until(stage.limit, rates) if stage.limit and grows else _until(0, _none()),
        resets=stage.resets,
        bytes_at_most=_rebuilt(stage) if stage.kind == "per_frame" else at_most or stage.state_bytes or None,
        verified=stage.verified,
    )


def _rebuilt(stage: CacheStage) -> int | None:
    return stage.limit * stage.kv_bytes_per_position if stage.limit else None


def _none() -> RatesByState:
    return RatesByState(listening=None, speaking=None, mean=None)


def _fit(profile: Profile, memory: int | None, length_s: float, share: float) -> MemoryFit | None:
    if memory is None and profile.kv_pool is None:
        return None
    asked = ForecastPlan(profile, 1, length_s, memory=memory, memory_share=share)
    question, plan = asked.question(), asked.memory_plan
    sessions, binding = max_sessions_and_cause(question)
    lines = [] if plan is None else plan.lines(max(1, sessions or 0))
    return MemoryFit(
        memory_bytes=memory,
        memory_share=None if memory is None else share,
        sessions=sessions,
        binding=binding,
        confidence=question.confidence,
        session_length_s=length_s,
        memory=[MemoryRow(what=line.what, bytes=line.size, how=line.how) for line in lines],
    )
