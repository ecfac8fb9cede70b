"""State of a vLLM engine, and the pool demand of a session by its profile."""

from __future__ import annotations

import math
from collections.abc import Callable

from metronome_cli.backends.interface import BackendStats
from metronome_cli.backends.vllm.engine import StreamingEngine
from metronome_cli.backends.vllm.pool_gauge import PoolGauge
from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import Clock
from metronome_cli.core.session import FrameGivenUp, HostEvent, SessionEnded
from metronome_cli.forecast.occupancy_trace import OccupancyTrace, clean_trace


class EngineMonitor:
    """Implements `Monitor` on an engine's own statistics. `stop` ends the engine.

    The pool is full if a session got no answer while the pool was nearly full; the time is when it became nearly full.
    """

    def __init__(self, engine: StreamingEngine, clock: Clock, stop: Callable[[], None]) -> None:
        self._gauge: PoolGauge = engine.gauge
        self._clock = clock
        self._stop = stop
        self._pool_full_s: float | None = None
        self._leaving_s: float | None = (
            None  # when the first session ended; later occupancy is of fewer sessions
        )
        self._at_end: BackendStats | None = None

    def begin(self) -> None:
        self._gauge.forget()
        self._leaving_s = None

    def take(self, event: HostEvent) -> None:
        if isinstance(event, FrameGivenUp) and self._pool_full_s is None:
            self._pool_full_s = self._nearly_full_since()
        if isinstance(event, SessionEnded) and self._leaving_s is None:
            self._leaving_s = self._clock.now()

    def _nearly_full_since(self) -> float | None:
        """Since when the pool is nearly full, on the trial clock; None if it is not."""
        since = self._gauge.nearly_full_since
        return None if since is None else max(0.0, self._clock.now() - (self._gauge.clock() - since))

    def stats(self) -> BackendStats:
        return self._at_end or BackendStats(
            pool=self._gauge.pool(),
            occupancy_max=self._gauge.occupancy_max,
            pool_full_s=self._pool_full_s,
            blocked=self._pool_full_s is not None,
            preemptions=self._gauge.preemptions,
            occupancy=self._trace(),
            server="vLLM",
        )

    def _trace(self) -> OccupancyTrace:
        """Return the occupancy trace with all sessions, from time 0 to a full pool, on the trial clock."""
        begin = self._gauge.clock() - self._clock.now()
        samples = [(at - begin, level) for at, level in list(self._gauge.trace) if at >= begin]
        ends_s = [instant for instant in (self._pool_full_s, self._leaving_s) if instant is not None]
        return clean_trace([row for row in samples if row[0] <= min(ends_s, default=math.inf)])

    def close(self) -> None:
        self._at_end = self.stats()
        self._stop()


def blocks_at(profile: Profile, age_s: float) -> int:
    """Return the most blocks of one session up to that age; 0 if vLLM sizes the pool itself."""
    if profile.kv_pool is None:
        return 0
    seen = math.ceil(profile.positions_at(age_s) / profile.kv_pool.block_size)
    most = window_blocks(profile)
    return seen if most is None else min(seen, most)


def window_blocks(profile: Profile) -> int | None:
    """Return the most blocks of a session under a window; None without a window."""
    assert profile.kv_pool is not None
    frame = frame_positions(profile)
    return profile.policy_spec.most_blocks(
        forward=frame, frame=frame, block_tokens=profile.kv_pool.block_size
    )


def frame_positions(profile: Profile) -> int:
    """Return the most positions that one frame adds."""
    return math.ceil(max(profile.tokens.per_frame(True), profile.tokens.per_frame(False)))


def frame_blocks(profile: Profile) -> int:
    """Return the most blocks that one frame allocates, if the last block of the cache is partly used."""
    return 1 if profile.kv_pool is None else math.ceil(frame_positions(profile) / profile.kv_pool.block_size)
