"""What goes into a frame step and what comes out. No torch here, so every layer may import it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Audio = npt.NDArray[np.float32]
EndReason = Literal[
    "completed", "completed_silent", "shed", "context_limit", "rejected", "fell_behind", "engine_error",
    "generator_error", "unreachable", "queue_timeout", "connection_closed", "protocol_error", "excess_output",
    "no_output", "send_blocked", "server_error", "expired",
]  # fmt: skip
# "completed_silent": the session reached its end, but without output for a while, or waiting for a block. The last
# eight are ends of sessions over the network (backends/websocket/session.py).


class SessionOver(Exception):
    """A session ends here."""

    def __init__(self, reason: EndReason, detail: str = "") -> None:
        super().__init__(detail)
        self.reason: EndReason = reason
        self.detail = detail


class SessionRefused(Exception):
    """No slot, or no room in the pool, for one more session. `binding` is "slots" or "memory"."""

    def __init__(self, binding: Literal["slots", "memory"], message: str) -> None:
        super().__init__(message)
        self.binding = binding


@dataclass(frozen=True, slots=True)
class FrameInput:
    """One session's frame. audio: [samples] float32 at the profile's rate; `tokens_out` to decode."""

    slot: int
    audio: Audio
    tokens_out: int


@dataclass(frozen=True, slots=True)
class FrameOutput:
    """What the engine answered to one frame.

    `delivered` tokens of `expected`; `waiting` when no block was free and the session waits (the frame is
    empty, on time); `ended` when this frame ended the session.
    """

    slot: int
    expected: int
    delivered: int
    waiting: bool = False
    ended: EndReason | None = None
    tokens: Sequence[int] = ()
    audio: Audio | None = None

    @property
    def empty(self) -> bool:
        """An answer was due and none came."""
        return self.expected > 0 and self.delivered == 0


@dataclass(frozen=True, slots=True)
class PoolState:
    """The pool as a dashboard would see it. `running` sessions hold blocks and move; `waiting` ones are stuck."""

    used_blocks: int
    total_blocks: int
    running: int
    waiting: int

    @property
    def occupancy(self) -> float:
        """rho: used blocks / all blocks."""
        return self.used_blocks / self.total_blocks if self.total_blocks else 0.0


@dataclass(frozen=True, slots=True)
class StepResult:
    """One batched frame step. `stages_s`: seconds in each stage ("encode", "prefill", "decode", ...)."""

    outcomes: Sequence[FrameOutput]
    stages_s: Mapping[str, float]
    pool: PoolState
    preemptions: int = 0
    recomputed_tokens: int = 0
    other_pools: Mapping[str, PoolState] = field(default_factory=dict)
    compute_s: float | None = None  # stated by a simulated target; None: the driver measures it
