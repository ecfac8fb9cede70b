"""A decoder for tests of adapters: its state is a leaky sum of the inputs of each slot."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_KEEP = 0.8


class FakeDecoder:
    """Implements `engine.interface.CachedDecoder`. `calls` lists (slots, counts) of every forward."""

    def __init__(self, hidden_size: int, dtype: torch.dtype = torch.float32) -> None:
        self.hidden_size = hidden_size
        self.device = torch.device("cpu")
        self.dtype = dtype
        self.calls: list[tuple[list[int], list[int]]] = []
        self._sums: dict[int, Tensor] = {}
        self._lengths: dict[int, int] = {}

    def forward(self, slots: Sequence[int], embeds: Tensor, counts: Sequence[int]) -> Tensor:
        """See `CachedDecoder.forward`. Never reads past counts[b] in row b."""
        self.calls.append((list(slots), list(counts)))
        return torch.stack(
            [self._feed(slot, rows[:count]) for slot, rows, count in zip(slots, embeds, counts, strict=True)]
        )

    def length(self, slot: int) -> int:
        return self._lengths.get(slot, 0)

    def _feed(self, slot: int, rows: Tensor) -> Tensor:
        total = self._sums.get(slot, torch.zeros(self.hidden_size, dtype=self.dtype))
        for row in rows:
            total = _KEEP * total + row
        self._sums[slot] = total
        self._lengths[slot] = self.length(slot) + len(rows)
        return total * torch.rsqrt(total.square().mean() + 1e-6)
