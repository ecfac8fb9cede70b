"""A profile as stores of session memory, and what can end a run in each of them.

The main decoder's pool and its trained context; every further stage with a pool or a limit of its own. Memory
outside all pools (rings allocated at open, codec state) does not grow: it is subtracted from the device's memory
before the pool is sized (forecast/memory.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.model_shape import CacheStage
from metronome_cli.config.profile import Profile
from metronome_cli.forecast.first_passage import Hazard
from metronome_cli.forecast.growth import CacheGrowth
from metronome_cli.forecast.pool_fill import PoolFill
from metronome_cli.forecast.position_limit import PositionLimit
from metronome_cli.forecast.turn_cache_fill import TurnCacheFill
from metronome_cli.load.turn_taking import TurnTakingProcess

POOL, CONTEXT = "pool", "context"


def turn_process(profile: Profile) -> TurnTakingProcess:
    """The profile's turn-taking."""
    return TurnTakingProcess(profile.turn_taking.speaking_share, profile.turn_taking.mean_turn)


def decoder_growth(profile: Profile, block_tokens: int, age_s: float = 0.0) -> CacheGrowth:
    """One session in the main decoder's pool; `age_s` lived at the mean rate before it started."""
    tokens = profile.tokens
    aged = age_s / profile.frame.period_s * profile.mean_tokens_per_frame
    return CacheGrowth(
        process=turn_process(profile),
        period_s=profile.frame.period_s,
        into=tokens.prefill,
        listening=0 if tokens.fused else tokens.decode.listening,
        speaking=0 if tokens.fused else tokens.decode.speaking,
        head=round(profile.prompt_tokens + aged),
        block_tokens=block_tokens,
        policy=profile.policy_spec,
    )


def stage_growth(profile: Profile, stage: CacheStage) -> CacheGrowth:
    """One session in a further stage that never resets."""
    period_s, speed = profile.frame.period_s, stage.positions_per_s
    return CacheGrowth(
        process=turn_process(profile),
        period_s=period_s,
        listening=speed.listening * period_s,
        speaking=speed.speaking * period_s,
        block_tokens=stage.pool.block_size if stage.pool else 1,
        policy=CachePolicySpec("ring", stage.limit)
        if stage.kind == "ring" and stage.limit
        else CachePolicySpec("unbounded"),
    )


def hazards(
    profile: Profile,
    sessions: int,
    total_blocks: int,
    block_tokens: int,
    *,
    occupied: int = 0,
    over_s: float = 0.0,
) -> list[Hazard]:
    """Yield all hazards of a run of `sessions`, started over `over_s` seconds. `blocks`: of the main pool."""
    growth = decoder_growth(profile, block_tokens)
    found: list[Hazard] = []
    if profile.shape.kv_bytes_per_token:
        found.append(PoolFill(POOL, growth, sessions, total_blocks, occupied, over_s))
    if profile.policy_spec.kind == "unbounded" and profile.shape.context_length is not None:
        found.append(PositionLimit(CONTEXT, growth, sessions, profile.shape.context_length, over_s))
    for stage in profile.stages:
        found.extend(_stage_hazards(profile, stage, sessions, over_s))
    return found


def _stage_hazards(profile: Profile, stage: CacheStage, sessions: int, over_s: float) -> Iterator[Hazard]:
    if stage.kind not in ("paged", "ring"):
        return
    name, process = f"stage {stage.name}", turn_process(profile)
    blocks = stage.pool.block_count(stage.kv_bytes_per_position) if stage.pool else None
    if stage.kind == "paged" and stage.resets == "turn" and process.share < 1:
        speed = stage.positions_per_s
        block_tokens = stage.pool.block_size if stage.pool else 1
        if blocks is not None or stage.limit is not None:
            yield TurnCacheFill(
                name if blocks is not None else f"{name} limit",
                process, sessions, speed.listening, speed.speaking, block_tokens, blocks, stage.limit,
            )  # fmt: skip
        return
    growth = stage_growth(profile, stage)
    if blocks is not None:
        yield PoolFill(name, growth, sessions, blocks, 0, over_s)
    if stage.kind == "paged" and stage.limit is not None:
        yield PositionLimit(f"{name} limit", growth, sessions, stage.limit, over_s)
