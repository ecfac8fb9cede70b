"""What the load driver can drive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from metronome_cli.core.types import FrameInput, PoolState, StepResult


class Target(Protocol):
    """Something that seats sessions and answers batches of frames, in the caller's own thread."""

    def open(self, age_s: float = 0.0) -> int:
        """Seat a session that has already lived `age_s` seconds; its slot. Raises SlotRefused."""

    def step(self, frames: Sequence[FrameInput]) -> StepResult:
        """Answer one frame of each session given, in one batch."""

    def close(self, slot: int) -> None:
        """Leave the seat; its memory is free for others at once."""

    def pool(self) -> PoolState:
        """The pool now."""

    def blocks_at(self, age_s: float) -> int:
        """Most blocks that one session holds up to that age, at its mean rate, for planning memory."""

    def describe(self) -> dict[str, Any]:
        """What ran: device, path through the layers, weights, bytes, stages."""
