"""The input embeddings of one slot that a recomputation would need, kept only where a policy may ask for
them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metronome_cli.engine.cache_policies import EVERYTHING, CachePolicy, RecyclingCache


class InputLog:
    """Embeddings of the first `head` and the newest `tail` tokens, by position since the slot's first token.

    A slot that was opened at an age has no inputs before it: those are drawn, seeded, when asked for.
    """

    def __init__(self, hidden: int, *, head: int, tail: int, born: int, seed: int) -> None:
        self.total = born
        self._hidden = hidden
        self._head_tokens = head
        self._tail_tokens = tail
        self._born = born
        self._seed = seed
        self._head: list[tuple[int, Tensor]] = []  # (position of the first row, [n, hidden])
        self._tail: list[tuple[int, Tensor]] = []

    def append(self, rows: Tensor) -> None:
        """rows: [n, hidden], copied."""
        start, kept = self.total, rows.detach().clone()
        self.total += len(rows)
        if start < self._head_tokens:
            self._head.append((start, kept[: self._head_tokens - start]))
        self._tail.append((start, kept))
        while self._tail_tokens < EVERYTHING and self._ends(self._tail[0]) <= self.total - self._tail_tokens:
            self._tail.pop(0)

    def rows(self, start: int, stop: int, like: Tensor) -> Tensor:
        """[stop - start, hidden] of these positions, on the device and in the dtype of `like`.

        Raises LookupError for a position that was seen and not kept.
        """
        parts, at = [], start
        if at < self._born:
            parts.append(self._drawn(at, min(stop, self._born)).to(like))
            at = min(stop, self._born)
        for first, rows in (*self._head, *self._tail):
            if first <= at < min(stop, first + len(rows)):
                parts.append(rows[at - first : stop - first].to(like))
                at += len(parts[-1])
        if at < stop:
            raise LookupError(f"the input of position {at} was not kept")
        return torch.cat(parts) if parts else like.new_empty(0, self._hidden)

    def _drawn(self, start: int, stop: int) -> Tensor:
        generator = torch.Generator().manual_seed(self._seed + start)
        return torch.randn(stop - start, self._hidden, generator=generator)

    @staticmethod
    def _ends(chunk: tuple[int, Tensor]) -> int:
        return chunk[0] + len(chunk[1])


def input_log_size(policy: CachePolicy, block_tokens: int) -> dict[str, int]:
    """`head` and `tail` of a log that can bring back everything the policy holds, by whole blocks."""
    head = -(-policy.sinks // block_tokens) * block_tokens
    if isinstance(policy, RecyclingCache):
        tail = 2 * policy.horizon
    elif policy.window >= EVERYTHING:
        tail = EVERYTHING
    else:
        tail = policy.window + 2 * block_tokens
        tail += policy.max_chunk if policy.max_chunk < EVERYTHING else 0
    return {"head": head, "tail": tail}
