"""Inverse forecast: the pool size, or the rate, that an observed collapse implies.

For models whose pool was not published. The cache is taken as unbounded and the pool as empty at the
start: the implied pool is the median of what N sessions hold at that instant, the implied rate what fills
the profile's pool by then, half a block of rounding a session taken off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from metronome_cli.config.profile import Profile
from metronome_cli.forecast.growth import UNBOUNDED
from metronome_cli.forecast.hazards import POOL, decoder_growth
from metronome_cli.forecast.pool_fill import PoolFill


@dataclass(frozen=True, slots=True)
class ImpliedFigures:
    """Positions. `positions_per_s` is a session's, None where the profile has no pool."""

    pool_positions: int
    positions_per_s: float | None


def implied(profile: Profile, sessions: int, t_sat_s: float) -> ImpliedFigures:
    """Return the pool size at the profile's rate, and the rate at the profile's pool, for a pool full at `t_sat_s`."""
    block_tokens = profile.kv_pool.block_size if profile.kv_pool else 16
    growth = replace(decoder_growth(profile, block_tokens), policy=UNBOUNDED)
    held = PoolFill(POOL, growth, sessions, 1).use(t_sat_s).quantile(0.5)
    if profile.kv_pool is None:
        return ImpliedFigures(held * block_tokens, None)
    blocks = profile.kv_pool.block_count(profile.shape.kv_bytes_per_token)
    each = blocks * block_tokens / sessions - (block_tokens - 1) / 2 - growth.head
    return ImpliedFigures(held * block_tokens, max(0.0, each) / t_sat_s)
