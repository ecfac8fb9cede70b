"""The first request of a new engine: absorbs one-time costs and checks whether a window is applied.

A session is fed more than twice its window, then a few frames. If the engine applies the window, its blocks stay few;
if it holds all of them, it ignores the window in the model's configuration.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from metronome_cli.backends.vllm.engine import Chunk, StreamingEngine
from metronome_cli.backends.vllm.monitor import frame_positions, window_blocks
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import PoolState

FRAMES = 4
_STATED_S = 0.1  # s; a scheduler's report follows the answer
_SPARE_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class WarmUpResult:
    """Positions fed, and blocks held after them."""

    positions: int
    blocks: int


async def warm(engine: StreamingEngine, profile: Profile) -> WarmUpResult:
    """Feed one session and end it. Raises EngineError."""
    frame = frame_positions(profile)
    first = max(1, first_positions(profile, engine.context, engine.gauge.pool()))
    counts = [first, *([frame] * FRAMES)]
    answered = asyncio.Semaphore(1)

    async def feed() -> AsyncGenerator[Chunk, None]:
        for count in counts:
            await answered.acquire()
            yield Chunk([(7 * place) % engine.vocab for place in range(count)], 1)
        await asyncio.Event().wait()  # keep the request open, or its blocks would be freed

    talk = engine.talk("warm-up", feed())
    left = len(counts)
    try:
        async for heard in talk:
            left -= heard.done
            if not left:
                break
            if heard.done:
                answered.release()
        await asyncio.sleep(_STATED_S)
        held = engine.gauge.pool().used_blocks
    finally:
        await talk.aclose()
    return WarmUpResult(sum(counts), held)


def first_positions(profile: Profile, context: int, pool: PoolState) -> int:
    """Return twice the window and some blocks more, if context and pool allow it; else one frame."""
    frame = frame_positions(profile)
    if profile.policy_spec.grows or profile.kv_pool is None:
        return frame
    each = profile.kv_pool.block_size
    wanted = 2 * profile.policy_spec.window + _SPARE_BLOCKS * each
    most = min(context, pool.total_blocks * each) - (FRAMES + 1) * frame
    return wanted if wanted <= most else frame


def check_window(profile: Profile, seen: WarmUpResult) -> str | None:
    """Describe whether the requested window is applied. Raises UsageError if it is not."""
    most = None if profile.kv_pool is None else window_blocks(profile)
    if most is None:
        return None if profile.policy_spec.grows else "not checked: vLLM sizes the pool itself"
    assert profile.kv_pool is not None
    if seen.positions <= most * profile.kv_pool.block_size:
        return f"not checked: the context or the pool is smaller than twice {profile.policy_spec.window}"
    if seen.blocks == 0:
        return "not checked: the engine reports no occupancy"
    if seen.blocks > most:
        raise UsageError(
            f"vLLM ignores this model's sliding_window: {seen.blocks} blocks held after "
            f"{seen.positions} positions, where {profile.policy_spec} takes {most} at most",
            hint="use --policy unbounded, or a model whose attention vLLM runs under a window",
        )
    return f"kept: {seen.blocks} blocks held after {seen.positions} positions"
