"""A model loaded once, and fresh engines on its weights."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from metronome_cli.config.model_shape import KvPoolSpec
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import FrameInput, PoolState, StepResult
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.cuda_graphs import on_device
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.failures import as_engine_error, is_out_of_memory
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.models.registry import LoadedModel, load_adapter


@dataclass(frozen=True, slots=True)
class InProcessModel:
    """A model in this process's memory."""

    loaded: LoadedModel
    seed: int

    @classmethod
    def load(cls, profile: Profile, *, device: str, seed: int, weights: Path | None = None) -> InProcessModel:
        """Load the weights of the profile's adapter: random ones from the seed, or those of a checkpoint directory."""
        try:
            with on_device(torch.device(pick_device(device))):
                return cls(
                    load_adapter(profile, weights=weights, device=pick_device(device), seed=seed), seed
                )
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise as_engine_error(error, "loading the model") from error
            raise

    @property
    def placement(self) -> tuple[torch.device, torch.dtype]:
        """Return device and dtype of the decoder's weights."""
        decoder = self.loaded.decoder
        if isinstance(decoder, DecoderWeights):
            return decoder.device, decoder.dtype
        first = next(decoder.parameters())
        return first.device, first.dtype

    def fresh_engine(self, profile: Profile, slots: int) -> InProcessEngine:
        """Return a new engine under the profile's policy and pool."""
        if profile.kv_pool is None:
            raise UsageError(
                f"profile {profile.name}: pool: no budget is given",
                hint="give one, such as --kv-pool 2GiB",
            )
        try:
            with on_device(self.placement[0]):
                return self._build(profile, profile.kv_pool, slots)
        except (RuntimeError, MemoryError) as error:
            raise as_engine_error(error, "making the KV pool") from error

    def _build(self, profile: Profile, pool: KvPoolSpec, slots: int) -> InProcessEngine:
        gc.collect()  # reference cycles may keep the previous engine's pool alive
        stack = build_decoder(
            self.loaded.decoder,
            blocks=pool.block_count(profile.shape.kv_bytes_per_token),
            block_tokens=pool.block_size,
            policy=profile.policy_spec,
            sink_positions=profile.sink_positions,
            context=profile.shape.need("context_length"),
            chunk=self.loaded.chunk,
            keep_inputs=profile.on_pool_full == "preempt",
            seed=self.seed,
        )
        engine = FrameEngine(self.loaded.fresh(), stack, slots, profile.on_pool_full)
        engine.warm_up()
        return InProcessEngine(engine, profile, self.loaded.weights)


class InProcessEngine:
    """Implements `StepEngine` on a FrameEngine."""

    def __init__(self, engine: FrameEngine, profile: Profile, weights: str) -> None:
        self._engine = engine
        self._profile = profile
        self._weights = weights

    def open(self, age_s: float = 0.0) -> int:
        try:
            return self._engine.open(self._profile.positions_at(age_s))
        except (RuntimeError, MemoryError) as error:
            raise as_engine_error(error, "opening a session") from error

    def step(self, frames: Sequence[FrameInput]) -> StepResult:
        return self._engine.step(frames)

    def close(self, slot: int) -> None:
        self._engine.close(slot)

    def pool(self) -> PoolState:
        return self._engine.pool()

    def blocks_at(self, age_s: float) -> int:
        stack, seen = self._engine.stack, self._profile.positions_at(age_s)
        back = 2 * self._profile.policy_spec.window if self._profile.policy_spec.kind == "recycle" else 0
        back += stack.pool.block_tokens
        return max(stack.blocks_at(tokens) for tokens in range(max(0, seen - back), seen + 1))

    def describe(self) -> dict[str, Any]:
        return {**self._engine.describe(), "weights": self._weights}


def pick_device(name: str) -> str:
    """Return the device of a name; "auto" prefers CUDA. Raises UsageError if the device does not exist."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"--device: {name!r} is not a device", hint="auto, cpu, cuda or cuda:0") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"--device {name}: no CUDA device is available", hint="use --device cpu")
    there = torch.cuda.device_count() if device.type == "cuda" else 0
    if device.type == "cuda" and (device.index or 0) >= there:
        raise UsageError(
            f"--device {name}: this machine has {there} CUDA device{'s' if there > 1 else ''}",
            hint="cuda:0" if there == 1 else f"cuda:0 to cuda:{there - 1}",
        )
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device: {name!r} is not supported", hint="auto, cpu, cuda or cuda:0")
    return name
