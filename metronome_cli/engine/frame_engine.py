"""The frame engine: seats, room in the pool, and one batched frame step for all due sessions.

A step reserves the cache positions of every frame first, oldest session first, then lets the model run the
frames that got their room. What happens to one that got none is the exhaustion mode:

- stall: it waits and keeps what it holds; its frame comes back empty, its input is dropped. Nothing is freed,
  so within a few frames all wait, until a session closes (vLLM's scheduler with resumable requests does
  this).
- preempt: the youngest session gives all its blocks up and is recomputed when they are free again.
- refuse: it ends, and its blocks are free.
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
    """waiting: its last frame found no block. evicted: it holds none until it is restored."""

    waiting: bool = False
    evicted: bool = False


@dataclass(slots=True)
class _StepAdmission:
    """What one step decided before the model ran."""

    admitted: list[FrameInput] = field(default_factory=list)
    outcomes: dict[int, FrameOutput] = field(default_factory=dict)
    preemptions: int = 0


class FrameEngine:
    """Serves frames of up to `max_slots` sessions with one model on one stack."""

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
        self._seats: dict[int, _SlotState] = {}  # in order of opening: oldest first

    def warm_up(self) -> None:
        """Pay at load what no frame should: CUDA graphs of every batch. Raises DeviceMemoryError."""
        self.stack.capture(self.max_slots)
        if isinstance(self.model, HasStagePools):
            self.model.warm_up(self.max_slots)

    def open(self, age_positions: int = 0) -> int:
        """Seat a session that has lived `age_positions` cache positions; its slot.

        Raises SlotRefused: "slots" when every seat is taken, "memory" when its blocks, or any at all, are not
        free.
        """
        if not self._free:
            raise SessionRefused("slots", f"no seat is free of {self.max_slots}")
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
        self._seats[slot] = _SlotState()
        return slot

    def close(self, slot: int) -> None:
        """Leave the seat and free its blocks. A session that the engine ended has left already: nothing
        happens.
        """
        if self._seats.pop(slot, None) is None:
            return
        self._free.append(slot)
        try:
            self.model.close(slot)
        finally:
            self.stack.close(slot)

    @torch.inference_mode()
    def step(self, frames: Sequence[FrameInput]) -> StepResult:
        """One frame of each session given, in one batch; outcomes in the order of `frames`.

        Raises ValueError for a slot that is not seated or given twice, EngineError when the model fails or what it
        makes is no number.
        After an EngineError every seat can still be closed.
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
        """The pool now."""
        waiting = sum(seat.waiting for seat in self._seats.values())
        pool = self.stack.pool
        return PoolState(pool.used_blocks, pool.total, len(self._seats) - waiting, waiting)

    def describe(self) -> dict[str, Any]:
        """The model's account of itself and the stack's."""
        return {**self.model.describe(), **self.stack.describe(), "on_pool_full": self.exhaustion}

    def _check(self, frames: Sequence[FrameInput]) -> None:
        slots = [frame.slot for frame in frames]
        if len(set(slots)) != len(slots) or any(slot not in self._seats for slot in slots):
            raise ValueError(f"slots {slots}: each must be open and given once")

    def _make_room(self, frames: Sequence[FrameInput]) -> _StepAdmission:
        tally = _StepAdmission()
        age = {slot: order for order, slot in enumerate(self._seats)}
        for frame in sorted(frames, key=lambda f: age[f.slot]):
            self._admit(frame, tally)
        return tally

    def _admit(self, frame: FrameInput, tally: _StepAdmission) -> None:
        seat = self._seats[frame.slot]
        new = self.model.positions(frame.slot, frame.tokens_out)
        if self.stack.passes_context(frame.slot, new):
            self._end(frame, "context_limit", tally)
        elif self._reserve(frame.slot, seat, new, tally):
            seat.waiting = False
            tally.admitted.append(frame)
        elif self.exhaustion == "refuse":
            self._end(frame, "rejected", tally)
        else:
            seat.waiting = True
            tally.outcomes[frame.slot] = FrameOutput(frame.slot, frame.tokens_out, 0, waiting=True)

    def _reserve(self, slot: int, seat: _SlotState, new: int, tally: _StepAdmission) -> bool:
        if seat.evicted:  # back in order of age: none overtakes an older one
            oldest = next(s for s, other in self._seats.items() if other.evicted)
            seat.evicted = slot != oldest or not self.stack.restore(slot, new)
            return not seat.evicted
        while not self.stack.reserve(slot, new):
            if self.exhaustion != "preempt":
                return False
            victim = next(s for s in reversed(self._seats) if s == slot or self.stack.blocks_held(s))
            self._evict(victim, tally)
            if victim == slot:
                return False
        return True

    def _evict(self, slot: int, tally: _StepAdmission) -> None:
        self.stack.evict(slot)
        seat = self._seats[slot]
        seat.evicted = seat.waiting = True
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
