"""The frame engine: slots, admission to the pool, and one batched step for all due frames.

A step first reserves the cache positions of every frame, oldest session first, then runs the model on the frames
whose positions were reserved. The exhaustion mode decides what happens to the others:

- stall: the session waits and keeps its blocks; its frame comes back empty and its input is dropped. Nothing is freed,
  so within a few frames all sessions wait until one closes (as vLLM's scheduler does with resumable requests).
- preempt: the youngest session gives up all its blocks and is recomputed when enough blocks are free again.
- refuse: the session ends and its blocks are freed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from metronome_cli.config.cache_policy import OnPoolFull
from metronome_cli.core.errors import EngineError
from metronome_cli.core.types import EndReason, FrameInput, FrameOutput, PoolState, SessionRefused, StepResult
from metronome_cli.engine.block_pool import PoolExhausted
from metronome_cli.engine.cuda_graphs import on_device
from metronome_cli.engine.failures import as_engine_error, check_audio, checked_together
from metronome_cli.engine.interface import HasStagePools, InteractionModel
from metronome_cli.engine.paged_decoder import PagedDecoder
from metronome_cli.engine.stage_timer import StageStopwatch

RECOMPUTE = "recompute"


@dataclass(slots=True)
class _SlotState:
    """State of one slot. `waiting`: no block was free for its last frame. `evicted`: it holds no blocks until
    restored."""

    waiting: bool = False
    evicted: bool = False


@dataclass(slots=True)
class _StepAdmission:
    """Frames that one step admits, and the outcomes that are known before the model runs."""

    admitted: list[FrameInput] = field(default_factory=list)
    outcomes: dict[int, FrameOutput] = field(default_factory=dict)
    preemptions: int = 0


class FrameEngine:
    """Runs frames of up to `max_slots` sessions with one model and one paged decoder."""

    def __init__(
        self, model: InteractionModel, stack: PagedDecoder, max_slots: int, exhaustion: OnPoolFull = "stall"
    ) -> None:
        if exhaustion == "preempt" and not stack.keep_inputs:
            raise ValueError("preempt needs a stack that keeps inputs")
        self.model = model
        self.stack = stack
        self.max_slots = max_slots
        self.exhaustion = exhaustion
        self._free = deque(range(max_slots))
        self._slots: dict[int, _SlotState] = {}  # in order of opening: oldest first

    def warm_up(self) -> None:
        """Capture CUDA graphs for every batch size, so that no frame pays for it. Raises DeviceMemoryError."""
        self.stack.capture(self.max_slots)
        if isinstance(self.model, HasStagePools):
            self.model.warm_up(self.max_slots)

    def open(self, age_positions: int = 0) -> int:
        """Open a session that is `age_positions` cache positions old, and return its slot.

        Raises SessionRefused: "slots" if every slot is taken, "memory" if the pool is full or has too few free
        blocks.
        """
        if not self._free:
            raise SessionRefused("slots", f"all {self.max_slots} slots are taken")
        slot = self._free[0]
        if self.stack.pool.free_blocks == 0:
            raise SessionRefused("memory", "no block of the KV pool is free")
        try:
            self.stack.open(slot, age_positions)
        except PoolExhausted as error:
            raise SessionRefused("memory", f"the KV pool has no room for it: {error}") from error
        try:
            with torch.inference_mode(), on_device(self.stack.device):
                self.model.open(slot)
        except Exception:
            self.stack.close(slot)
            raise
        self._free.popleft()
        self._slots[slot] = _SlotState()
        return slot

    def close(self, slot: int) -> None:
        """Free the slot and its blocks. Does nothing for a session that the engine has ended."""
        if self._slots.pop(slot, None) is None:
            return
        self._free.append(slot)
        try:
            self.model.close(slot)
        finally:
            self.stack.close(slot)

    @torch.inference_mode()
    def step(self, frames: Sequence[FrameInput]) -> StepResult:
        """Run one frame of each given session in one batch; return outcomes in the order of `frames`.

        Raises ValueError for a slot that is not open or given twice, EngineError if the model fails or its output is
        not a number. After an EngineError every slot can still be closed.
        """
        self._check(frames)
        timer = StageStopwatch(self.model.stages, self.stack.device)
        tally = self._make_room(frames)
        recomputed = 0
        try:
            if tally.admitted:
                with on_device(self.stack.device), checked_together():
                    recomputed = self._rebuild(timer)
                    self._run(tally, timer)
        except EngineError:
            raise
        except Exception as error:
            raise as_engine_error(error, "a frame step") from error
        return StepResult(
            outcomes=[tally.outcomes[frame.slot] for frame in frames],
            stages_s=timer.seconds,
            pool=self.pool(),
            preemptions=tally.preemptions,
            recomputed_tokens=recomputed,
            other_pools=self.model.pools() if isinstance(self.model, HasStagePools) else {},
        )

    def pool(self) -> PoolState:
        """Return the current state of the KV pool."""
        waiting = sum(state.waiting for state in self._slots.values())
        pool = self.stack.pool
        return PoolState(pool.used_blocks, pool.total, len(self._slots) - waiting, waiting)

    def describe(self) -> dict[str, Any]:
        """Return the descriptions of the model and the decoder for the report."""
        return {**self.model.describe(), **self.stack.describe(), "on_pool_full": self.exhaustion}

    def _check(self, frames: Sequence[FrameInput]) -> None:
        slots = [frame.slot for frame in frames]
        if len(set(slots)) != len(slots) or any(slot not in self._slots for slot in slots):
            raise ValueError(f"slots {slots}: each must be open and given once")

    def _make_room(self, frames: Sequence[FrameInput]) -> _StepAdmission:
        tally = _StepAdmission()
        age = {slot: order for order, slot in enumerate(self._slots)}
        for frame in sorted(frames, key=lambda f: age[f.slot]):
            self._admit(frame, tally)
        return tally

    def _admit(self, frame: FrameInput, tally: _StepAdmission) -> None:
        state = self._slots[frame.slot]
        new = self.model.positions(frame.slot, frame.tokens_out)
        if self.stack.passes_context(frame.slot, new):
            self._end(frame, "context_limit", tally)
        elif self._reserve(frame.slot, state, new, tally):
            state.waiting = False
            tally.admitted.append(frame)
        elif self.exhaustion == "refuse":
            self._end(frame, "rejected", tally)
        else:
            state.waiting = True
            tally.outcomes[frame.slot] = FrameOutput(frame.slot, frame.tokens_out, 0, waiting=True)

    def _reserve(self, slot: int, state: _SlotState, new: int, tally: _StepAdmission) -> bool:
        if state.evicted:  # restored in order of age, so that no session overtakes an older one
            oldest = next(s for s, other in self._slots.items() if other.evicted)
            state.evicted = slot != oldest or not self.stack.restore(slot, new)
            return not state.evicted
        while not self.stack.reserve(slot, new):
            if self.exhaustion != "preempt":
                return False
            victim = next(s for s in reversed(self._slots) if s == slot or self.stack.blocks_held(s))
            self._evict(victim, tally)
            if victim == slot:
                return False
        return True

    def _evict(self, slot: int, tally: _StepAdmission) -> None:
        self.stack.evict(slot)
        state = self._slots[slot]
        state.evicted = state.waiting = True
        tally.preemptions += 1

    def _end(self, frame: FrameInput, reason: EndReason, tally: _StepAdmission) -> None:
        self.close(frame.slot)
        tally.outcomes[frame.slot] = FrameOutput(frame.slot, frame.tokens_out, 0, ended=reason)

    def _rebuild(self, timer: StageStopwatch) -> int:
        if not self.stack.owes:
            return 0
        with timer(RECOMPUTE):
            return self.stack.rebuild()

    def _run(self, tally: _StepAdmission, timer: StageStopwatch) -> None:
        frames = tally.admitted
        slots = [frame.slot for frame in frames]
        outputs = self.model.frame(
            self.stack,
            slots,
            [frame.audio for frame in frames],
            [frame.tokens_out for frame in frames],
            timer,
        )
        for frame, output in zip(frames, outputs, strict=True):
            if output.audio is not None:
                check_audio(output.audio)
            tally.outcomes[frame.slot] = FrameOutput(
                frame.slot, frame.tokens_out, len(output.tokens), tokens=output.tokens, audio=output.audio
            )
