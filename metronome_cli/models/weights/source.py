"""Where a model's weights come from: a seed, or a checkpoint. Modules ask by name and get filled tensors.

A module names a tensor and says its shape; the answer is on the device in the dtype, so it can be packed or
sliced at once and nothing is held twice. Random values depend on seed and name alone, not on the order of
asking. Their scale keeps a signal's size through any number of layers: normal with std = gain / sqrt(fan_in).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from metronome_cli.core.errors import UsageError
from metronome_cli.models.weights.checkpoint import Checkpoint, CheckpointLayout, TensorRecipe


class WeightSource(Protocol):
    """Gives tensors by name. `taken` counts numbers handed out, `taken_bytes` their bytes."""

    device: torch.device
    dtype: torch.dtype
    taken: int
    taken_bytes: int

    def tensor(
        self, name: str, *shape: int, fan_in: int = 0, gain: float = 1.0, value: float | None = None
    ) -> Tensor:
        """A tensor of that shape. `fan_in` (default: the last dimension), `gain` and the constant `value` say
        what a random one is like."""


@dataclass(slots=True)
class RandomSource:
    """Seeded values, made on the device."""

    seed: int
    device: torch.device
    dtype: torch.dtype
    taken: int = 0
    taken_bytes: int = 0

    def tensor(
        self, name: str, *shape: int, fan_in: int = 0, gain: float = 1.0, value: float | None = None
    ) -> Tensor:
        """See `WeightSource.tensor`."""
        out = torch.empty(shape, device=self.device, dtype=self.dtype)
        _count(self, out)
        if value is not None:
            return out.fill_(value)
        mixed = zlib.crc32(f"{self.seed} {name}".encode())  # a generator on the CPU takes in 32 bits only
        generator = torch.Generator(self.device).manual_seed(mixed)
        return out.normal_(0.0, gain / math.sqrt(fan_in or shape[-1]), generator=generator)


@dataclass(slots=True)
class CheckpointSource:
    """Tensors of a checkpoint, found through the first layout that has them."""

    checkpoint: Checkpoint
    layouts: Sequence[CheckpointLayout]
    device: torch.device
    dtype: torch.dtype
    taken: int = 0
    taken_bytes: int = 0

    def tensor(
        self, name: str, *shape: int, fan_in: int = 0, gain: float = 1.0, value: float | None = None
    ) -> Tensor:
        """See `WeightSource.tensor`. Raises UsageError for a tensor that is missing or of another shape."""
        recipe = self._find(name)
        value_read = recipe.build([self.checkpoint.read(s, self.device, self.dtype) for s in recipe.sources])
        if tuple(value_read.shape) != shape:
            raise UsageError(
                f"{self.checkpoint.root}: {recipe.sources[0]} gives {list(value_read.shape)} for {name}, "
                f"the profile's shape needs {list(shape)}",
                hint="use the profile of this checkpoint's size",
            )
        _count(self, value_read)
        return value_read

    def _find(self, name: str) -> TensorRecipe:
        recipes = [recipe for layout in self.layouts if (recipe := layout(name)) is not None]
        for recipe in recipes:
            if self.checkpoint.has(recipe):
                return recipe
        raise self._misfit(name, recipes)

    def _misfit(self, name: str, recipes: Sequence[TensorRecipe]) -> UsageError:
        """Names what is missing in the layout that the file comes closest to, and what it has instead."""
        files = self.checkpoint.files
        closest = max(recipes, key=lambda recipe: sum(s in files for s in recipe.sources), default=None)
        missing = next((s for s in closest.sources if s not in files), name) if closest else name
        unexpected = next(self.checkpoint.unused(), None)
        also = f"; first unexpected tensor {unexpected}" if unexpected else ""
        return UsageError(
            f"{self.checkpoint.root}: missing tensor {missing}{also}",
            hint="this checkpoint is of another architecture or size",
        )


def _count(source: RandomSource | CheckpointSource, tensor: Tensor) -> None:
    source.taken += tensor.numel()
    source.taken_bytes += tensor.numel() * tensor.element_size()
