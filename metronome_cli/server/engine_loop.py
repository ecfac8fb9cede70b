"""Engine loop of the reference server: one thread runs the engine steps for all sessions.

A step starts as soon as any frame waits. It takes the oldest waiting frame of each session, up to the maximum batch
size. If the engine returns no tokens because the pool is full, nothing is sent to the client.
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
    """One session of the engine. `answer` is called in the event loop with the output of each frame."""

    slot: int
    answer: OnReply
    turns: DrawnTurns
    frames: deque[Audio] = field(default_factory=deque)
    rest: Audio = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    heard: int = 0  # complete frames received
    served: int = 0
    speaks: bool = False  # in the last frame that was submitted
    decide: Callable[[bool], bool] = bool  # overrides the turn schedule's speaking flag


class EngineLoop:
    """Batches the frames of all open sessions for one engine."""

    def __init__(self, target: StepEngine, profile: Profile, seed: int = 0) -> None:
        self.profile = profile
        self.steps = 0
        self.preemptions = 0
        self.tokens = 0
        self.pool: PoolState = target.pool()
        self._target = target
        self._seed = seed
        self._sessions: dict[int, ServedSession] = {}
        self._due = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._opened = 0

    def __len__(self) -> int:
        return len(self._sessions)

    async def _inside(self, act: Callable[..., Result], *values: Any) -> Result:
        """Run `act` in the engine's thread, one call at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, act, *values)

    async def open(self, answer: OnReply) -> ServedSession:
        """Open a session in a free slot. Raises SessionRefused if there is none."""
        slot = await self._inside(self._target.open)
        turns = self.profile.turn_taking
        self._opened += 1
        plan = DrawnTurns(turns.speaking_share, turns.mean_turn, seed=self._seed * 1_000_003 + self._opened)
        session = self._sessions[slot] = ServedSession(slot, answer, plan)
        return session

    async def close(self, session: ServedSession) -> None:
        """Close the session and free its slot. A second call does nothing."""
        if self._sessions.pop(session.slot, None) is not None:
            await self._inside(self._target.close, session.slot)
            self.pool = await self._inside(self._target.pool)

    def hear(self, session: ServedSession, samples: Audio) -> None:
        """Add input audio, [samples] float32 at the profile's sample rate. Complete frames are queued."""
        size = self.profile.frame.samples
        joined = np.concatenate((session.rest, samples)) if len(session.rest) else samples
        whole = len(joined) // size
        session.frames.extend(joined[at * size : (at + 1) * size] for at in range(whole))
        session.rest = joined[whole * size :]
        session.heard += whole
        if session.frames:
            self._due.set()

    async def run(self) -> None:
        """Run engine steps until cancelled. Raises EngineError if the engine fails."""
        while True:
            await self._due.wait()
            batch = [session for session in self._sessions.values() if session.frames][
                : self.profile.max_batch_size
            ]
            if batch:
                await self._step(batch)
            else:
                self._due.clear()

    async def _step(self, batch: list[ServedSession]) -> None:
        result = await self._inside(self._target.step, [self._frame_of(session) for session in batch])
        self.steps += 1
        self.preemptions += result.preemptions
        self.pool = result.pool
        for session, outcome in zip(batch, result.outcomes, strict=True):
            self.tokens += outcome.delivered
            if outcome.ended is not None:
                self._sessions.pop(session.slot, None)
            elif session.slot in self._sessions:  # move to the end, so that a full batch starves no session
                self._sessions[session.slot] = self._sessions.pop(session.slot)
            session.answer(outcome)

    def _frame_of(self, session: ServedSession) -> FrameInput:
        out = self.profile.tokens.decode
        session.speaks = session.decide(session.turns.speaking(session.served * self.profile.frame.period_s))
        session.served += 1
        return FrameInput(
            session.slot, session.frames.popleft(), out.speaking if session.speaks else out.listening
        )

    def shut(self) -> None:
        """Stop the engine's thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)
