"""Selects the next token by its logits: the most likely one, or a random draw.

A draw is the Gumbel-max form, argmax(logits / T - log e) with e exponential. Each session has a generator
of its own, so its output does not depend on the other sessions of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metronome_cli.engine.failures import check_sampled
from metronome_cli.engine.transfer import to_device
from metronome_cli.models.keyed_noise import exponential


class Sampler:
    """`temperature` 0 is greedy."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature = temperature
        self._seed = seed
        self._opened = 0
        self._generators: dict[int, torch.Generator] = {}
        self._keys: dict[int, int] = {}  # of the next draw on a GPU

    def fresh(self) -> Sampler:
        """Return a sampler with the same settings and no open slot."""
        return Sampler(self._temperature, self._seed)

    def open(self, slot: int) -> None:
        """Start a session in this slot, with a random generator of its own."""
        seed = self._seed * 1_000_003 + self._opened
        self._generators[slot] = torch.Generator().manual_seed(seed)
        self._keys[slot] = seed << 24
        self._opened += 1

    def close(self, slot: int) -> None:
        del self._generators[slot], self._keys[slot]

    def pick(self, slots: Sequence[int], logits: Tensor) -> Tensor:
        """logits: [batch, vocab], row b of slots[b] -> token ids [batch]. Raises EngineError for a NaN."""
        picked = self._pick(slots, logits)
        check_sampled(logits, picked)
        return picked

    def _pick(self, slots: Sequence[int], logits: Tensor) -> Tensor:
        if self._temperature == 0.0:
            return logits.argmax(dim=1)
        if logits.device.type == "cuda":
            races = exponential(self._next_keys(slots, logits.device), logits.shape[1])
            return (logits.float() / self._temperature - races.log_()).argmax(dim=1)
        draws = torch.stack(
            [torch.empty(logits.shape[1]).exponential_(generator=self._generators[slot]) for slot in slots]
        )
        return (logits.float() / self._temperature - draws.log().to(logits.device)).argmax(dim=1)

    def _next_keys(self, slots: Sequence[int], device: torch.device) -> Tensor:
        """[batch], keys that no other draw has."""
        keys = [self._keys[slot] for slot in slots]
        self._keys.update((slot, key + 1) for slot, key in zip(slots, keys, strict=True))
        return to_device(keys, device)
