"""An engine with resumable requests but without a model, for tests. Its results are not measurements."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from metronome_cli.backends.vllm.engine import Chunk, TokensReceived
from metronome_cli.backends.vllm.pool_gauge import PoolGauge
from metronome_cli.core.errors import EngineError

_TICK_S = 0.002


class SimulatedStreamingEngine:
    """Implements `StreamingEngine`. A chunk takes `step_s`; a request keeps `window` positions, all if None.

    Without a free block a request waits forever and counts as neither running nor waiting, as in vLLM. The engine
    fails if a request exceeds `context`, after `die`, and after `chunks_of_life` chunks.
    """

    def __init__(
        self,
        gauge: PoolGauge,
        *,
        blocks: int,
        block_tokens: int = 16,
        step_s: float = 0.001,
        window: int | None = None,
        context: int = 1 << 20,
        slots: int = 64,
        chunks_of_life: float = math.inf,
    ) -> None:
        self.gauge = gauge
        self.vocab = 512
        self.context = context
        self.slots = slots
        self.chunks: dict[str, list[Chunk]] = {}  # received chunks by request
        self.stopped = False
        self._blocks = blocks
        self._block_tokens = block_tokens
        self._step_s = step_s
        self._window = window
        self._held: dict[str, int] = {}
        self._life = chunks_of_life
        self._death: str | None = None

    async def start(self) -> None:
        self.gauge.begin(self._blocks)
        self._state(0)

    def give_up(self) -> None:
        self.die("given up")

    async def stop(self) -> None:
        self.stopped = True

    def die(self, reason: str) -> None:
        """Make every request fail from now on."""
        self._death = reason

    def describe(self) -> dict[str, Any]:
        return {"engine": "fake", "device": "none"}

    def talk(self, name: str, chunks: AsyncIterator[Chunk]) -> AsyncGenerator[TokensReceived, None]:
        return self._talk(name, chunks)

    async def _talk(self, name: str, chunks: AsyncIterator[Chunk]) -> AsyncGenerator[TokensReceived, None]:
        self._held[name], positions = 0, 0
        try:
            async for chunk in chunks:
                self.chunks.setdefault(name, []).append(chunk)
                self._life -= 1
                positions += len(chunk.tokens) + chunk.out - 1
                await self._room(name, positions)
                await asyncio.sleep(self._step_s)
                self._state(0)
                for place in range(chunk.out):
                    self._live(positions)
                    yield TokensReceived([(positions + place) % self.vocab], place == chunk.out - 1)
        finally:
            del self._held[name]
            self._state(0)

    async def _room(self, name: str, positions: int) -> None:
        need = self._need(positions)
        while sum(self._held.values()) - self._held[name] + need > self._blocks:
            self._live(positions)
            self._held[name] += self._blocks - sum(self._held.values())  # the remaining blocks are taken too
            self._state(0)
            await asyncio.sleep(_TICK_S)
        self._held[name] = need
        self._state(1)

    def _need(self, positions: int) -> int:
        if self._window is None:
            return math.ceil(positions / self._block_tokens)
        return math.ceil(min(positions, self._window) / self._block_tokens)

    def _live(self, positions: int) -> None:
        if positions > self.context:
            self._death = "a request is longer than the model's context"
        if self._life < 0:
            self._death = "the worker was killed"
        if self._death is not None:
            raise EngineError(self._death)

    def _state(self, running: int) -> None:
        self.gauge.take(0, sum(self._held.values()) / self._blocks, running, 0)
