"""One live session on an engine of resumable requests: chunks of tokens out on the beat, tokens back, a named end.

    finished    its time was over                  lost_beat   answers fell behind by the profile's limit
    silenced    its time was over, and it waited   context     it filled the model's context, and that ended it
    shed        sent away by this side             engine      the engine died

A frame's sound becomes tokens (models/audio/audio_tokens.py), before them the last token of the answer before:
the engine
drops that one from its cache, as does any decoder that has not been fed it yet. A frame's latency runs from the
planned instant at which its last sample has arrived to the last token of its answer. A frame waits on this side while
the one before it is not answered, just as the engine would let it wait. One that owes no answer still gets a token,
the least that can be asked for, which is thrown away.

Who answers, but too late, is behind; a session that has been quiet for `give_up_s` is not behind but stuck: its frames
count as empty, and late by that time.
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

_LOOK_S = 0.05


@dataclass(slots=True)
class _PendingFrame:
    due_s: float  # -inf: not a frame but the past
    tokens: list[int]
    out: int
    told: bool = False


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
        self.start_s = math.inf  # of its first sample
        self.end_s = math.inf
        self.next_due_s = math.inf
        self.positions = 0  # of its cache, the chunk under way included
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
        self._free = asyncio.Event()  # no chunk is under way
        self._free.set()
        self._said: list[int] = []  # of the answer under way
        self._unfed: list[int] = []
        self._heard_s = 0.0

    @property
    def horizon_s(self) -> float:
        """No record of a frame due before this instant is still to come."""
        untold = (frame.due_s for frame in list(self._waiting) if not frame.told)
        return min(next(untold, math.inf), self.next_due_s)

    async def live(self, gate: asyncio.Event) -> None:
        """The whole session; frames start when the gate is open. Tells its end, whatever happens."""
        reason: EndReason = "shed"
        detail = ""
        try:
            await _first_to_end(self._listen(), self._speak(gate))
        except SessionOver as over:
            reason, detail = over.reason, over.detail
        except EngineError as error:
            reason = "context_limit" if self.positions > self._engine.context else "engine_error"
            detail = error.message
        except Exception as error:  # a fault of this side: nobody waits for the task, so it must be told
            reason, detail = "generator_error", f"{type(error).__name__}: {error}"[:200]
        finally:
            self.next_due_s = math.inf
            self._tell(SessionEnded(self.index, reason, detail, self._now()))

    # -- the user's side ----------------------------------------------------------------------------------------

    async def _speak(self, gate: asyncio.Event) -> None:
        came_s = self._now()
        past = min(self._profile.positions_at(self.age_s), self._engine.context - 1)
        if self.age_s and past > 0:
            self._put(_PendingFrame(-math.inf, self._past(past), 0))
            await self._answered()
        self._tell(SessionStarted(self.index, self._now() - came_s))
        await gate.wait()
        await self._pace(self._now() + self._phase_s)
        raise SessionOver("completed" if await self._last_answer() else "completed_silent")

    def _past(self, count: int) -> list[int]:
        """Tokens that nobody else has said. [count]"""
        rng = np.random.default_rng([self._seed, self.index])
        return [int(token) for token in rng.integers(0, self._engine.vocab, count)]

    async def _pace(self, start_s: float) -> None:
        period_s, out = self._profile.frame.period_s, self._profile.tokens.decode
        self.start_s, self.end_s = start_s, start_s + self._lifetime_s
        self._heard_s = start_s
        frame = 0
        while start_s + (frame + 1) * period_s <= self.end_s + 1e-9:
            due_s = self.next_due_s = start_s + (frame + 1) * period_s
            tokens = self._tokens(frame)
            speaks = self._turns.speaking(self.age_s + frame * period_s)
            await asyncio.sleep(due_s - self._now())
            self._put(_PendingFrame(due_s, tokens, out.speaking if speaks else out.listening))
            self._tell(FrameSent(due_s, self._now() - due_s))
            self._look()
            frame += 1
        self.next_due_s = math.inf

    def _tokens(self, frame: int) -> list[int]:
        """What the profile says a frame adds, on average; one at the least, since an empty chunk is none."""
        each = self._profile.tokens.prefill
        count = max(1, math.floor((frame + 1) * each) - math.floor(frame * each))
        return audio_to_tokens(self._stream.frame(frame), count, self._engine.vocab)

    def _put(self, frame: _PendingFrame) -> None:
        self._waiting.append(frame)
        self._outbox.put_nowait(frame)

    async def _answered(self) -> None:
        while self._waiting:
            await asyncio.sleep(_LOOK_S)

    async def _last_answer(self) -> bool:
        """Whether everything was answered before it had to be given up."""
        while self._waiting and not self._stuck():
            await asyncio.sleep(_LOOK_S)
        self._look()
        return not self._waiting

    # -- the engine's side --------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        talk = self._engine.talk(f"session-{self.index}", self._chunks())
        try:
            async for heard in talk:
                self._take(heard)
        finally:
            await talk.aclose()
        raise SessionOver("connection_closed", "the engine ended the request")

    async def _chunks(self) -> AsyncGenerator[Chunk, None]:
        while True:
            frame = await self._outbox.get()
            await self._free.wait()
            self._free.clear()
            chunk = Chunk([*self._unfed, *frame.tokens], max(1, frame.out))
            self.positions += len(chunk.tokens) + chunk.out - 1
            yield chunk

    def _take(self, heard: TokensReceived) -> None:
        now = self._heard_s = self._now()
        self._said.extend(heard.tokens)
        if not heard.done:
            return
        frame = self._waiting.popleft()
        delivered = self._said[: frame.out]
        self._unfed, self._said = delivered[-1:], []
        self._free.set()
        if frame.due_s > -math.inf and not frame.told:
            self._tell(FrameResult(self.index, frame.due_s, now, frame.out, len(delivered)))
        if len(self._waiting) > self._profile.frame.max_backlog:
            raise SessionOver("fell_behind", f"{len(self._waiting)} frames behind")

    def _stuck(self) -> bool:
        if not self._waiting:
            return False
        return self._now() - max(self._heard_s, self._waiting[0].due_s) >= self._give_up_s

    def _look(self) -> None:
        """Give up the frames that nothing came for."""
        if not self._stuck():
            return
        latest_s = self._now() - self._give_up_s
        for frame in self._waiting:
            if frame.told or frame.due_s > latest_s:
                continue
            frame.told = True
            self._tell(FrameGivenUp())
            self._tell(FrameResult(self.index, frame.due_s, frame.due_s + self._give_up_s, frame.out, 0))


async def _first_to_end(*parts: Coroutine[Any, Any, None]) -> None:
    """Run side by side until one raises; the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in sorted(done, key=tasks.index):
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
