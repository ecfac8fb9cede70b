"""An engine that answers batches of frames in the thread that calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from metronome_cli.core.types import FrameInput, PoolState, StepResult


class StepEngine(Protocol):
    """The engine of this process, or a simulated one."""

    def open(self, age_s: float = 0.0) -> int:
        """Open a session of age `age_s` seconds and return its slot. Raises SessionRefused."""

    def step(self, frames: Sequence[FrameInput]) -> StepResult:
        """Answer one frame of each session given, in one batch."""

    def close(self, slot: int) -> None:
        """Free the slot and its memory."""

    def pool(self) -> PoolState:
        """Return the state of the pool now."""

    def blocks_at(self, age_s: float) -> int:
        """Return the most blocks that one session holds up to that age, at its mean rate."""

    def describe(self) -> dict[str, Any]:
        """Describe the engine: device, layer implementation, weights, bytes, stages."""
