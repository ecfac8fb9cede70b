"""A step engine without a model, with given step times. Fills a pool by the policy's rules and fails on request.

For deterministic tests of drivers and controllers on the virtual clock. Its results are not measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from metronome_cli.config.profile import Profile
from metronome_cli.core.types import FrameInput, FrameOutput, PoolState, SessionRefused, StepResult


class SimulatedEngine:
    """Step time is `step_s(sessions served)`, or 0 if all sessions wait. `on_pool_full` is `stall`."""

    def __init__(
        self,
        profile: Profile,
        slots: int,
        step_s: Callable[[int], float],
        *,
        before_step: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._profile = profile
        self._slots = slots
        self._step_s = step_s
        self._before_step = before_step  # may raise, for tests of faults
        self._steps = 0
        self._tokens: dict[int, float] = {}
        self._used = 0  # blocks of all sessions
        self._waiting: set[int] = set()
        self._next_slot = 0
        pool = profile.kv_pool
        assert pool is not None
        self._block_tokens = pool.block_size
        self._total = pool.block_count(profile.shape.kv_bytes_per_token)
        tokens = profile.tokens
        self._most_blocks = profile.policy_spec.most_blocks(
            forward=math.ceil(tokens.prefill) + (not tokens.fused),
            frame=math.ceil(max(tokens.per_frame(True), tokens.per_frame(False))),
            block_tokens=pool.block_size,
        )

    def open(self, age_s: float = 0.0) -> int:
        if len(self._tokens) >= self._slots:
            raise SessionRefused("slots", f"no slot is free of {self._slots}")
        tokens = self._profile.positions_at(age_s)
        blocks = self._blocks(tokens)
        if self._used + blocks > self._total:
            raise SessionRefused("memory", "the KV pool has too few free blocks")
        self._used += blocks
        slot = self._next_slot
        self._next_slot += 1
        self._tokens[slot] = tokens
        return slot

    def step(self, frames: Sequence[FrameInput]) -> StepResult:
        self._steps += 1
        self._before_step(self._steps)
        outcomes = [self._serve(frame) for frame in frames]
        served = sum(not outcome.waiting for outcome in outcomes)
        seconds = self._step_s(served) if served else 0.0
        return StepResult(outcomes, {"decode": seconds}, self.pool(), compute_s=seconds)

    def _serve(self, frame: FrameInput) -> FrameOutput:
        before = self._tokens[frame.slot]
        fed_back = 0 if self._profile.tokens.fused else frame.tokens_out
        after = before + self._profile.tokens.prefill + fed_back
        grown = self._blocks(after) - self._blocks(before)
        if self._used + grown > self._total:
            self._waiting.add(frame.slot)
            return FrameOutput(frame.slot, frame.tokens_out, 0, waiting=True)
        self._waiting.discard(frame.slot)
        self._tokens[frame.slot] = after
        self._used += grown
        return FrameOutput(frame.slot, frame.tokens_out, frame.tokens_out)

    def close(self, slot: int) -> None:
        self._used -= self._blocks(self._tokens.pop(slot))
        self._waiting.discard(slot)

    def pool(self) -> PoolState:
        waiting = len(self._waiting)
        return PoolState(self._used, self._total, len(self._tokens) - waiting, waiting)

    def blocks_at(self, age_s: float) -> int:
        return self._blocks(self._profile.positions_at(age_s))

    def describe(self) -> dict[str, Any]:
        return {"device": "none", "weights": "none"}

    def _blocks(self, tokens: float) -> int:
        blocks, policy = math.ceil(tokens / self._block_tokens), self._profile.policy_spec
        if self._most_blocks is None:
            return blocks
        return self._most_blocks if policy.kind == "ring" else min(blocks, self._most_blocks)
