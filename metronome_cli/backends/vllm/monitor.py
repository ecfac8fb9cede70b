"""A vLLM engine as points and reports see it: its pool, its seats, what it is."""

from __future__ import annotations

import math
from typing import Any, Protocol

from metronome_cli.backends.vllm.engine import StreamingEngine
from metronome_cli.backends.vllm.pool_gauge import PoolGauge
from metronome_cli.config.profile import Profile
from metronome_cli.core.types import PoolState
from metronome_cli.forecast.occupancy_trace import OccupancyTrace, clean_trace


class Now(Protocol):
    """A run's clock."""

    def now(self) -> float: ...


class EngineMonitor:
    """A running engine under one profile."""

    def __init__(self, engine: StreamingEngine, profile: Profile) -> None:
        self.engine = engine
        self.gauge: PoolGauge = engine.gauge
        self.seats = engine.seats
        self._profile = profile

    def pool(self) -> PoolState:
        """As its scheduler last stated."""
        return self.gauge.pool()

    def blocks_at(self, age_s: float) -> int:
        """See `targets.base.Target`."""
        return blocks_at(self._profile, age_s)

    def nearly_full_since(self, clock: Now) -> float | None:
        """Since when hardly a block is free, on that clock; None: some are."""
        since = self.gauge.nearly_full_since
        return None if since is None else max(0.0, clock.now() - (self.gauge.clock() - since))

    def trace(self, clock: Now, until_s: float | None) -> OccupancyTrace:
        """Occupancy on that clock, from its 0 on, up to `until_s`; while the run lasts."""
        begin = self.gauge.clock() - clock.now()
        samples = [(at - begin, level) for at, level in self.gauge.trace if at >= begin]
        return clean_trace([(t_s, level) for t_s, level in samples if until_s is None or t_s <= until_s])

    def describe(self) -> dict[str, Any]:
        """See `targets.base.Target`."""
        return self.engine.describe()


class PlannedTarget:
    """An engine that is not made: what is known of it from the profile and its arguments."""

    def __init__(self, profile: Profile, description: dict[str, Any]) -> None:
        self._profile = profile
        self._description = description

    def pool(self) -> PoolState:
        """An empty pool; without blocks where vLLM is to size it."""
        pool = self._profile.kv_pool
        blocks = pool.block_count(self._profile.shape.kv_bytes_per_token) if pool else 0
        return PoolState(0, blocks, 0, 0)

    def blocks_at(self, age_s: float) -> int:
        """See `targets.base.Target`."""
        return blocks_at(self._profile, age_s)

    def describe(self) -> dict[str, Any]:
        """See `targets.base.Target`."""
        return dict(self._description)


def blocks_at(profile: Profile, age_s: float) -> int:
    """Most blocks of one session up to that age; 0 where vLLM sizes the pool itself."""
    if profile.kv_pool is None:
        return 0
    seen = math.ceil(profile.positions_at(age_s) / profile.kv_pool.block_size)
    most = window_blocks(profile)
    return seen if most is None else min(seen, most)


def window_blocks(profile: Profile) -> int | None:
    """Most blocks of a session under a window; None where there is none."""
    assert profile.kv_pool is not None
    frame = frame_positions(profile)
    return profile.policy_spec.most_blocks(
        forward=frame, frame=frame, block_tokens=profile.kv_pool.block_size
    )


def frame_positions(profile: Profile) -> int:
    """Most positions that one frame adds."""
    return math.ceil(max(profile.tokens.per_frame(True), profile.tokens.per_frame(False)))


def frame_blocks(profile: Profile) -> int:
    """Most blocks that one frame takes at once, in a cache whose last block is partly used."""
    return 1 if profile.kv_pool is None else math.ceil(frame_positions(profile) / profile.kv_pool.block_size)
