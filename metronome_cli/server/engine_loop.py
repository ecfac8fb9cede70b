"""The engine of a reference server: one thread steps it, callers put frames in and get answers out.

A step takes the oldest waiting frame of every caller who has one, up to the maximum batch, as soon as there is
any. What the engine answers with no tokens (the pool is full, the session waits) is answered with silence: nothing
is sent, as by servers whose engine stalls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from metronome_cli.backends.step_engine import StepEngine
from metronome_cli.config.profile import Profile
from metronome_cli.core.types import Audio, FrameInput, FrameOutput, PoolState
from metronome_cli.load.turn_taking import DrawnTurns

Result = TypeVar("Result")
OnReply = Callable[[FrameOutput], None]


@dataclass(slots=True)
class ServedSession:
    """A caller at the engine. `answer` is called in the loop for each frame."""

    slot: int
    answer: OnReply
    turns: DrawnTurns
    frames: deque[Audio] = field(default_factory=deque)
    rest: Audio = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    heard: int = 0  # frames that came in whole
    served: int = 0
    speaks: bool = False  # in the frame that was served last
    decide: Callable[[bool], bool] = bool  # whether it speaks, from what the turns of the profile say


class EngineLoop:
    """Seats around one target."""

    def __init__(self, target: StepEngine, profile: Profile, seed: int = 0) -> None:
        self.profile = profile
        self.steps = 0
        self.preemptions = 0
        self.tokens = 0
        self.pool: PoolState = target.pool()
        self._target = target
        self._seed = seed
        self._seats: dict[int, ServedSession] = {}
        self._due = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._opened = 0

    def __len__(self) -> int:
        return len(self._seats)

    async def _inside(self, act: Callable[..., Result], *values: Any) -> Result:
        """In the engine's thread, one thing at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, act, *values)

    async def open(self, answer: OnReply) -> ServedSession:
        """A seat. Raises SlotRefused."""
        slot = await self._inside(self._target.open)
        turns = self.profile.turn_taking
        self._opened += 1
        plan = DrawnTurns(turns.speaking_share, turns.mean_turn, seed=self._seed * 1_000_003 + self._opened)
        seat = self._seats[slot] = ServedSession(slot, answer, plan)
        return seat

    async def close(self, seat: ServedSession) -> None:
        """Leave it; a second time does nothing."""
        if self._seats.pop(seat.slot, None) is not None:
            await self._inside(self._target.close, seat.slot)
            self.pool = await self._inside(self._target.pool)

    def hear(self, seat: ServedSession, samples: Audio) -> None:
        """Audio of that caller, [samples] float32 at the profile's rate; whole frames queue up."""
        size = self.profile.frame.samples
        joined = np.concatenate((seat.rest, samples)) if len(seat.rest) else samples
        whole = len(joined) // size
        seat.frames.extend(joined[at * size : (at + 1) * size] for at in range(whole))
        seat.rest = joined[whole * size :]
        seat.heard += whole
        if seat.frames:
            self._due.set()

    async def run(self) -> None:
        """Step for ever. Raises EngineError when the engine fails."""
        while True:
            await self._due.wait()
            batch = [seat for seat in self._seats.values() if seat.frames][: self.profile.max_batch_size]
            if batch:
                await self._step(batch)
            else:
                self._due.clear()

    async def _step(self, batch: list[ServedSession]) -> None:
        result = await self._inside(self._target.step, [self._frame_of(seat) for seat in batch])
        self.steps += 1
        self.preemptions += result.preemptions
        self.pool = result.pool
        for seat, outcome in zip(batch, result.outcomes, strict=True):
            self.tokens += outcome.delivered
            if outcome.ended is not None:
                self._seats.pop(seat.slot, None)
            elif seat.slot in self._seats:  # to the end of the line, so that a full batch starves nobody
                self._seats[seat.slot] = self._seats.pop(seat.slot)
            seat.answer(outcome)

    def _frame_of(self, seat: ServedSession) -> FrameInput:
        out = self.profile.tokens.decode
        seat.speaks = seat.decide(seat.turns.speaking(seat.served * self.profile.frame.period_s))
        seat.served += 1
        return FrameInput(seat.slot, seat.frames.popleft(), out.speaking if seat.speaks else out.listening)

    def shut(self) -> None:
        """End the engine's thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)
