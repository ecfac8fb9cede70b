"""A model of one small decoder and nothing else, and an engine on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from metronome_cli.config.cache_policy import CachePolicySpec, OnPoolFull
from metronome_cli.config.model_shape import ModelShape
from metronome_cli.core.types import Audio, FrameInput
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.engine.interface import CachedDecoder, StageTimer

SHAPE = ModelShape(
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    hidden_size=16,
    intermediate_size=24,
    vocab_size=32,
    dtype="float32",
    context_length=10**6,
)
WEIGHTS = DecoderWeights.random(SHAPE, seed=1)
BLOCK_TOKENS = 4
INTO = 3  # positions prefilled a frame


@dataclass
class ToyOutput:
    tokens: Sequence[int]
    audio: Audio | None = None


@dataclass
class ToyModel:
    """Three positions in from the audio's first samples, greedy tokens out. Fails at frame `fail_at`."""

    stages: tuple[str, ...] = ("prefill", "decode")
    fail_at: int = -1
    frames: int = 0
    open_slots: set[int] = field(default_factory=set)

    def positions(self, slot: int, tokens_out: int) -> int:
        return INTO + tokens_out

    def open(self, slot: int) -> None:
        self.open_slots.add(slot)

    def close(self, slot: int) -> None:
        self.open_slots.remove(slot)

    def frame(
        self,
        stack: CachedDecoder,
        slots: Sequence[int],
        audio: Sequence[Audio],
        tokens_out: Sequence[int],
        timer: StageTimer,
    ) -> Sequence[ToyOutput]:
        self.frames += 1
        if self.frames == self.fail_at:
            raise RuntimeError("the model broke")
        with timer("prefill"):
            rows = np.stack([a[: INTO * SHAPE.hidden_size].reshape(INTO, SHAPE.hidden_size) for a in audio])
            hidden = stack.forward(slots, torch.from_numpy(rows), [INTO] * len(slots))
        tokens: list[list[int]] = [[] for _ in slots]
        with timer("decode"):
            for step in range(max(tokens_out)):
                going = [row for row in range(len(slots)) if tokens_out[row] > step]
                assert WEIGHTS.head is not None
                assert WEIGHTS.embedding is not None
                picked = WEIGHTS.head(hidden[going]).argmax(-1)
                for row, token in zip(going, picked.tolist(), strict=True):
                    tokens[row].append(token)
                new = stack.forward(
                    [slots[r] for r in going], WEIGHTS.embedding[picked][:, None], [1] * len(going)
                )
                hidden[going] = new
        return [ToyOutput(t) for t in tokens]

    def describe(self) -> Mapping[str, Any]:
        return {"adapter": "toy", "weights": "random"}


def frame(slot: int, tokens_out: int = 2, seed: int = 0) -> FrameInput:
    """A frame with audio of its own."""
    audio = (
        np.random.default_rng(1000 * seed + slot).standard_normal(INTO * SHAPE.hidden_size).astype(np.float32)
    )
    return FrameInput(slot, audio, tokens_out)


def engine(
    exhaustion: OnPoolFull = "stall",
    *,
    blocks: int = 20,
    policy: str = "unbounded",
    slots: int = 8,
    context: int | None = None,
    model: ToyModel | None = None,
) -> FrameEngine:
    stack = build_decoder(
        WEIGHTS,
        blocks=blocks,
        block_tokens=BLOCK_TOKENS,
        policy=CachePolicySpec.parse(policy),
        context=context,
        keep_inputs=exhaustion == "preempt",
        chunk=INTO,
        poison=True,
    )
    return FrameEngine(model or ToyModel(), stack, slots, exhaustion)
