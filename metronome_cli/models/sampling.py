"""Selects the next token by its logits: the most likely one, or a random draw.

A draw is the Gumbel-max form, argmax(logits / T - log e) with e exponential. Each session has a generator
of its own, so its output does not depend on the other sessions of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metronome_cli.engine.failures import check_sampled


class Sampler:
    """`temperature` 0 is greedy."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature = temperature
        self._seed = seed
        self._opened = 0
        self._generators: dict[int, torch.Generator] = {}

    def fresh(self) -> Sampler:
        """Return a sampler with the same settings and no open slot."""
        return Sampler(self._temperature, self._seed)

    def open(self, slot: int) -> None:
        """Start a session in this slot, with a random generator of its own."""
        self._generators[slot] = torch.Generator().manual_seed(self._seed * 1_000_003 + self._opened)
        self._opened += 1

    def close(self, slot: int) -> None:
        del self._generators[slot]

    def pick(self, slots: Sequence[int], logits: Tensor) -> Tensor:
        """logits: [batch, vocab], row b of slots[b] -> token ids [batch]. Raises EngineError for a NaN."""
        picked = self._pick(slots, logits)
        check_sampled(logits, picked)
        return picked

    def _pick(self, slots: Sequence[int], logits: Tensor) -> Tensor:
        if self._temperature == 0.0:
            return logits.argmax(dim=1)
        draws = torch.stack(
            [torch.empty(logits.shape[1]).exponential_(generator=self._generators[slot]) for slot in slots]
        )
        return (logits.float() / self._temperature - draws.log().to(logits.device)).argmax(dim=1)
