"""The KV pool: one tensor of blocks shared by every session, and the list of the free ones.

Layout `[layers, 2, kv_heads, 1 + blocks, block_tokens, head_dim]`, keys then values. With the heads outside
the blocks, one `index_select` over `(2 x kv_heads x blocks)` rows brings keys and values of a whole batch
head-major, ready for batched products without a transposed copy (`docs/design/pool-layout.md`).

Block 0 is scratch: padded tokens are written there and padded table entries read it. It stays finite.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metronome_cli.engine.transfer import to_device

SCRATCH = 0
NOISE_STD = 0.5


class PoolExhausted(Exception):  # noqa: N818 - a state of the pool, not a fault
    """Fewer blocks are free than were asked for; nothing was allocated."""


class BlockPool:
    """Blocks of `block_tokens` positions. `total` counts the usable ones, without the scratch block.

    A block is zeroed when it is allocated, so what a session left behind never reaches the next, not even as
    a NaN under a mask. `poison` writes NaN into freed blocks: a test aid that proves nothing reads them.
    """

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        blocks: int,
        block_tokens: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        poison: bool = False,
    ) -> None:
        if min(layers, kv_heads, head_dim, blocks, block_tokens) < 1:
            raise ValueError("a pool needs at least one layer, head, dimension, block and token a block")
        self.total = blocks
        self.block_tokens = block_tokens
        self.poison = poison
        shape = (layers, 2, kv_heads, 1 + blocks, block_tokens, head_dim)
        self.data: Tensor = torch.zeros(shape, dtype=dtype, device=device)
        self._free = list(range(blocks, 0, -1))
        self._held = bytearray(1 + blocks)
        self._noise: Tensor | None = None
        if poison and blocks:
            self._fill(self._free, float("nan"))

    @property
    def layers(self) -> int:
        return self.data.shape[0]

    @property
    def kv_heads(self) -> int:
        return self.data.shape[2]

    @property
    def head_dim(self) -> int:
        return self.data.shape[5]

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def used_blocks(self) -> int:
        return self.total - len(self._free)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block: keys and values of every layer."""
        return self.data.element_size() * self.data.numel() // (1 + self.total)

    def allocate(self, count: int) -> list[int]:
        """`count` zeroed blocks, all or none. Raises PoolExhausted."""
        if count > len(self._free):
            raise PoolExhausted(f"{count} blocks asked for, {len(self._free)} free")
        if count <= 0:
            return []
        taken = self._free[-count:]
        del self._free[-count:]
        for block in taken:
            self._held[block] = 1
        self._fill(taken, 0.0)
        return taken

    def free(self, blocks: Sequence[int]) -> None:
        """Give blocks back. Raises ValueError for one that is not allocated, and then frees none."""
        if len(set(blocks)) != len(blocks) or any(
            not 0 < b <= self.total or not self._held[b] for b in blocks
        ):
            raise ValueError(f"blocks {list(blocks)} are not all allocated")
        for block in blocks:
            self._held[block] = 0
        self._free.extend(blocks)
        if self.poison and blocks:
            self._fill(blocks, float("nan"))

    def randomise(self, blocks: Sequence[int], seed: int) -> None:
        """Put finite, seeded normal keys and values into allocated blocks, the same into each."""
        if self._noise is None:
            shape = (*self.data.shape[:3], *self.data.shape[4:])
            noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
            self._noise = noise.mul_(NOISE_STD).to(self.data)
        for block in blocks:
            self.data[:, :, :, block] = self._noise

    def _fill(self, blocks: Sequence[int], value: float) -> None:
        if self.data.device.type == "cpu" and len(blocks) <= 2:  # plain slices beat an index list here
            for block in blocks:
                self.data[:, :, :, block].fill_(value)
        else:
            self.data.index_fill_(3, to_device(list(blocks), self.data.device), value)
