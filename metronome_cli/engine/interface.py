"""The contract between an interaction model and the engine.

One model a file. A model turns a frame's audio into embeddings for its decoder (the `DecoderSpec` below says
which weights and shape that is), and may do more inside the frame (codec, depth transformer, further stages).
The engine owns slots, the KV pool, and the order of things; the model owns per-session state outside the pool,
always explicit, one entry a slot, resettable without touching the slot beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from metronome_cli.core.types import Audio, PoolState


class StageTimer(Protocol):
    """`with timer("encode"): ...` adds the elapsed seconds to that stage (device synchronised on CUDA)."""

    def __call__(self, stage: str) -> AbstractContextManager[None]: ...


class CachedDecoder(Protocol):
    """A decoder on a KV pool, as a model sees it (engine/paged_decoder.py). Slots are the engine's."""

    hidden_size: int
    device: torch.device
    dtype: torch.dtype

    def forward(self, slots: Sequence[int], embeds: Tensor, counts: Sequence[int]) -> Tensor:
        """Run new positions of some slots through the layers, appending to their caches.

        embeds: [batch, tokens, hidden], row b valid up to counts[b] (right-padded).
        Returns the final-normed hidden state of each row's last valid position: [batch, hidden].
        Room for the positions was reserved by the engine before.
        """

    def length(self, slot: int) -> int:
        """Positions the slot has seen so far (not: still resident)."""


class InteractionModel(Protocol):
    """Frame in, tokens (and audio) out, for a batch of sessions of different ages."""

    stages: tuple[str, ...]  # names of the timed stages, in order, e.g. ("encode", "prefill", "decode")

    def positions(self, slot: int, tokens_out: int) -> int:
        """Cache positions that this slot's next frame will append (the engine reserves them first)."""

    def open(self, slot: int) -> None:
        """Create the session state of this slot."""

    def close(self, slot: int) -> None:
        """Drop this slot's state."""

    def frame(
        self,
        stack: CachedDecoder,
        slots: Sequence[int],
        audio: Sequence[Audio],
        tokens_out: Sequence[int],
        timer: StageTimer,
    ) -> Sequence[FrameReply]:
        """One frame of each slot: encode, prefill, decode `tokens_out[i]` tokens."""

    def describe(self) -> Mapping[str, Any]:
        """Adapter, weights ("random" or a source), parameters, state bytes a session."""


@runtime_checkable
class HasStagePools(Protocol):
    """A model whose stages have their own pools. A session without a free block in one of them has
    no tokens in that frame."""

    def warm_up(self, slots: int) -> None:
        """Capture the stages' CUDA graphs for up to `slots` sessions. Does nothing on a CPU."""

    def pools(self) -> Mapping[str, PoolState]:
        """The pools beside the decoder's, by stage."""


@dataclass(frozen=True, slots=True)
class FrameReply:
    """Output of one slot in one frame. tokens: text first, then codec codes if the model returns them."""

    tokens: Sequence[int]
    audio: Audio | None = None
