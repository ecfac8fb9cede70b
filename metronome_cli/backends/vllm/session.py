"""One session on an engine with resumable requests: paced chunks of tokens in, tokens out, a named end reason.

        completed         the lifetime is over                      fell_behind    answers behind by the profile's limit
    completed_silent  the lifetime is over, frames unanswered   context_limit  it filled the model's context
    shed              closed by the load generator              engine_error   the engine stopped

A chunk holds the last token of the previous answer and the audio tokens of the frame (models/audio/audio_tokens.py):
the last token of an answer is not in the engine's cache, since no step has consumed it. A frame's latency runs from
the planned time at which its last sample has arrived to the last token of its answer. A frame waits in this process
while the one before it is unanswered, as it would in the engine. A frame that owes no answer still requests 1 token,
the minimum, which is discarded.

A session whose answers come too late is behind. A session without an answer for `give_up_s` is stuck: its frames count
as empty, with that latency.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np

from metronome_cli.backends.vllm.engine import Chunk, StreamingEngine, TokensReceived
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import EngineError
from metronome_cli.core.session import (
    FrameGivenUp,
    FrameResult,
    FrameSent,
    HostEvent,
    SessionEnded,
    SessionSpec,
    SessionStarted,
)
from metronome_cli.core.types import EndReason, SessionOver
from metronome_cli.load.workload import Workload
from metronome_cli.models.audio.audio_tokens import audio_to_tokens

_POLL_S = 0.05


@dataclass(slots=True)
class _PendingFrame:
    due_s: float  # -inf: the session's past, not a frame
    tokens: list[int]
    out: int
    reported: bool = False


class VllmSession:
    """A session on an engine. `now` is the trial clock, `tell` takes events; both are called in the engine's loop."""

    def __init__(
        self,
        session: SessionSpec,
        engine: StreamingEngine,
        profile: Profile,
        workload: Workload,
        *,
        seed: int,
        give_up_s: float,
        now: Callable[[], float],
        tell: Callable[[HostEvent], None],
    ) -> None:
        index = self.index = session.index
        self.age_s = session.age_s
        self.start_s = math.inf  # time of the first sample
        self.end_s = math.inf
        self.next_due_s = math.inf
        self.positions = 0  # in its cache, including the chunk in progress
        self._engine = engine
        self._profile = profile
        self._stream = workload.audio.stream(index)
        self._turns = workload.turns(index)
        self._phase_s = workload.audio.phase_s(index)
        self._lifetime_s = session.lifetime_s
        self._seed = seed
        self._give_up_s = give_up_s
        self._now = now
        self._tell = tell
        self._outbox: asyncio.Queue[_PendingFrame] = asyncio.Queue()
        self._waiting: deque[_PendingFrame] = deque()
        self._free = asyncio.Event()  # set if no chunk is in progress
        self._free.set()
        self._reply: list[int] = []  # tokens of the answer in progress
        self._unfed: list[int] = []
        self._received_s = 0.0

    @property
    def horizon_s(self) -> float:
        """All results of frames due before this instant have been reported."""
        unreported = (frame.due_s for frame in list(self._waiting) if not frame.reported)
        return min(next(unreported, math.inf), self.next_due_s)

    async def run(self, gate: asyncio.Event) -> None:
        """Run the session. Frames start when the gate is open. Its end is always reported."""
        reason: EndReason = "shed"
        detail = ""
        try:
            await _first_to_end(self._receive(), self._send_frames(gate))
        except SessionOver as over:
            reason, detail = over.reason, over.detail
        except EngineError as error:
            reason = "context_limit" if self.positions > self._engine.context else "engine_error"
            detail = error.message
        except (
            Exception
        ) as error:  # a bug in this process; no code awaits this task, so the error is sent as an event
            reason, detail = "generator_error", f"{type(error).__name__}: {error}"[:200]
        finally:
            self.next_due_s = math.inf
            self._tell(SessionEnded(self.index, reason, detail, self._now()))

    # -- the user's side ----------------------------------------------------------------------------------------

    async def _send_frames(self, gate: asyncio.Event) -> None:
        began_s = self._now()
        past = min(self._profile.positions_at(self.age_s), self._engine.context - 1)
        if self.age_s and past > 0:
            self._put(_PendingFrame(-math.inf, self._past(past), 0))
            await self._answered()
        self._tell(SessionStarted(self.index, self._now() - began_s))
        await gate.wait()
        await self._pace(self._now() + self._phase_s)
        raise SessionOver("completed" if await self._last_answer() else "completed_silent")

    def _past(self, count: int) -> list[int]:
        """Return random tokens that differ between sessions. [count]"""
        rng = np.random.default_rng([self._seed, self.index])
        return [int(token) for token in rng.integers(0, self._engine.vocab, count)]

    async def _pace(self, start_s: float) -> None:
        period_s, out = self._profile.frame.period_s, self._profile.tokens.decode
        self.start_s, self.end_s = start_s, start_s + self._lifetime_s
        self._received_s = start_s
        frame = 0
        while start_s + (frame + 1) * period_s <= self.end_s + 1e-9:
            due_s = self.next_due_s = start_s + (frame + 1) * period_s
            tokens = self._tokens(frame)
            speaks = self._turns.speaking(self.age_s + frame * period_s)
            await asyncio.sleep(due_s - self._now())
            self._put(_PendingFrame(due_s, tokens, out.speaking if speaks else out.listening))
            self._tell(FrameSent(due_s, self._now() - due_s))
            self._give_up_frames()
            frame += 1
        self.next_due_s = math.inf

    def _tokens(self, frame: int) -> list[int]:
        """Return the audio tokens of a frame: the profile's mean number, at least 1, since a chunk must not be
        empty."""
        each = self._profile.tokens.prefill
        count = max(1, math.floor((frame + 1) * each) - math.floor(frame * each))
        return audio_to_tokens(self._stream.frame(frame), count, self._engine.vocab)

    def _put(self, frame: _PendingFrame) -> None:
        self._waiting.append(frame)
        self._outbox.put_nowait(frame)

    async def _answered(self) -> None:
        while self._waiting:
            await asyncio.sleep(_POLL_S)

    async def _last_answer(self) -> bool:
        """Wait for the open answers. Return True if none had to be given up."""
        while self._waiting and not self._stuck():
            await asyncio.sleep(_POLL_S)
        self._give_up_frames()
        return not self._waiting

    # -- the engine's side --------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        tokens = self._engine.talk(f"session-{self.index}", self._chunks())
        try:
            async for received in tokens:
                self._on_tokens(received)
        finally:
            await tokens.aclose()
        raise SessionOver("connection_closed", "the engine ended the request")

    async def _chunks(self) -> AsyncGenerator[Chunk, None]:
        while True:
            frame = await self._outbox.get()
            await self._free.wait()
            self._free.clear()
            chunk = Chunk([*self._unfed, *frame.tokens], max(1, frame.out))
            self.positions += len(chunk.tokens) + chunk.out - 1
            yield chunk

    def _on_tokens(self, received: TokensReceived) -> None:
        now = self._received_s = self._now()
        self._reply.extend(received.tokens)
        if not received.done:
            return
        frame = self._waiting.popleft()
        delivered = self._reply[: frame.out]
        self._unfed, self._reply = delivered[-1:], []
        self._free.set()
        if frame.due_s > -math.inf and not frame.reported:
            self._tell(FrameResult(self.index, frame.due_s, now, frame.out, len(delivered)))
        if len(self._waiting) > self._profile.frame.max_backlog:
            raise SessionOver("fell_behind", f"{len(self._waiting)} frames behind")

    def _stuck(self) -> bool:
        if not self._waiting:
            return False
        return self._now() - max(self._received_s, self._waiting[0].due_s) >= self._give_up_s

    def _give_up_frames(self) -> None:
        """Give up the frames without an answer."""
        if not self._stuck():
            return
        latest_s = self._now() - self._give_up_s
        for frame in self._waiting:
            if frame.reported or frame.due_s > latest_s:
                continue
            frame.reported = True
            self._tell(FrameGivenUp())
            self._tell(FrameResult(self.index, frame.due_s, frame.due_s + self._give_up_s, frame.out, 0))


async def _first_to_end(*parts: Coroutine[Any, Any, None]) -> None:
    """Run coroutines concurrently until one ends or raises; cancel the others and wait for them."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in sorted(done, key=tasks.index):
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
