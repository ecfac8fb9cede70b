"""The tensors of one forward, computed once and shared by all layers.

What the policies left resident is read off the tables here and turned into rows to write, rows to gather and
a bias. Shapes: B rows (slots), T tokens a row (padded on the right), K = blocks x block_tokens gathered keys,
V KV heads, G query heads a KV head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metronome_cli.engine.attention_span import AttentionSpan
from metronome_cli.engine.block_pool import SCRATCH, BlockPool
from metronome_cli.engine.block_table import BlockTable
from metronome_cli.engine.rotary import Rotary

Int64 = npt.NDArray[np.int64]
NOWHERE = 1 << 60  # a position that no query reaches
HIDDEN = -1e30  # bias of a key that a query must not see: its weight underflows to an exact 0
SPAN_BYTES = 1 << 18  # keys and values of one session in one layer from which attending in place pays (CPU)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """positions: [B, T]. cos, sin: [B T, 1, head_dim] of each token's position. write_rows: [B T] pool rows
    of one head. gather_rows: [2 V B blocks] block rows over keys and values of all heads. bias: [V B, 1 or G
    T, K]. last: [B] the last valid token of each row in [B T]. turn: cosine and sine, [B T, 1, head_dim]
    each, that turn queries back by the sinks' shift; None when no sink has rolled. sinks: how many of the
    first K rows are sinks. spans: the pool rows of each batch row where they lie side by side and are long
    enough to be attended in place, without gathering; `bias` is then [B, 1 or G T, K]. None: gather. every:
    `last` names every token, and the states of all come back.
    """

    batch: int
    tokens: int
    blocks: int
    positions: Tensor
    cos: Tensor
    sin: Tensor
    write_rows: Tensor
    gather_rows: Tensor
    bias: Tensor
    last: Tensor
    turn: tuple[Tensor, Tensor] | None
    sinks: int
    spans: tuple[slice, ...] | None = None
    every: bool = False


class StepPlanner:
    """Makes plans for one decoder on one pool. `group`: query heads per KV head."""

    def __init__(self, pool: BlockPool, group: int, rotary: Rotary, reach: AttentionSpan) -> None:
        self.pool = pool
        self.group = group
        self.rotary = rotary
        self.reach = reach
        self._device, self._dtype = pool.data.device, pool.data.dtype
        self._hidden = np.float32(max(HIDDEN, torch.finfo(self._dtype).min / 2))
        self._head_rows = np.arange(2 * pool.kv_heads)[:, None] * (1 + pool.total)

    def plan(self, tables: Sequence[BlockTable], counts: Sequence[int], tokens: int) -> StepPlan:
        """The plan of appending counts[b] <= tokens tokens to each table.

        Raises IndexError when a table holds no block for a token.
        """
        rows = len(tables)
        lengths = np.array([table.length for table in tables], dtype=np.int64)
        valid = np.array(counts, dtype=np.int64)
        newest = lengths + valid - 1
        reached = [_reached(table, int(last)) for table, last in zip(tables, newest, strict=True)]
        width = max(1, *(len(ids) for ids, _ in reached))
        spans = self._spans(reached)
        if spans:
            reached = [_by_block(ids, starts) for ids, starts in reached]
        ids, starts = self._padded(reached, rows, width)
        positions = lengths[:, None] + np.arange(tokens)
        bias = self._bias(self._key_positions(tables, starts, newest), positions)
        cos, sin = self.rotary.turns(positions.reshape(-1), self._dtype, self._device)
        return StepPlan(
            batch=rows,
            tokens=tokens,
            blocks=width,
            positions=self._tensor(positions),
            cos=cos,
            sin=sin,
            write_rows=self._tensor(self._write_rows(tables, counts, rows, tokens)),
            gather_rows=self._tensor((self._head_rows + ids.reshape(1, -1)).reshape(-1)),
            bias=bias if spans else bias.repeat(self.pool.kv_heads, 1, 1),
            last=self._tensor(np.arange(rows) * tokens + np.maximum(valid, 1) - 1),
            turn=self._turn(newest, tokens),
            sinks=self.reach.sinks,
            spans=spans,
        )

    def _tensor(self, array: Int64) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _write_rows(
        self, tables: Sequence[BlockTable], counts: Sequence[int], rows: int, tokens: int
    ) -> Int64:
        """[rows x tokens] pool rows; padding goes to the scratch block."""
        write = np.full((rows, tokens), SCRATCH * self.pool.block_tokens, dtype=np.int64)
        for row, (table, count) in enumerate(zip(tables, counts, strict=True)):
            write[row, :count] = table.rows(count)
        return write.reshape(-1)

    def _padded(self, reached: Sequence[tuple[Int64, Int64]], rows: int, width: int) -> tuple[Int64, Int64]:
        """Block ids and start positions, [rows, width] each; padding is the scratch block, out of reach."""
        ids = np.full((rows, width), SCRATCH, dtype=np.int64)
        starts = np.full((rows, width), NOWHERE, dtype=np.int64)
        for row, (own_ids, own_starts) in enumerate(reached):
            ids[row, : len(own_ids)] = own_ids
            starts[row, : len(own_ids)] = own_starts
        return ids, starts

    def _spans(self, reached: Sequence[tuple[Int64, Int64]]) -> tuple[slice, ...] | None:
        """Each row's pool rows, if all rows' blocks are neighbours and gathering them would cost more."""
        size = self.pool.block_tokens
        tokens = sum(len(ids) for ids, _ in reached) * size
        layer_bytes = 2 * self.pool.kv_heads * self.pool.head_dim * self.pool.data.element_size()
        if self._device.type != "cpu" or self.reach.sinks or tokens * layer_bytes < len(reached) * SPAN_BYTES:
            return None
        spans = [slice(int(ids.min()) * size, (int(ids.max()) + 1) * size) for ids, _ in reached if len(ids)]
        taken = sum(span.stop - span.start for span in spans)
        return tuple(spans) if taken == tokens and len(spans) == len(reached) else None

    def _key_positions(self, tables: Sequence[BlockTable], starts: Int64, newest: Int64) -> Int64:
        """[rows, K] position of the key in each gathered row; NOWHERE, far ahead, where there is none."""
        size = self.pool.block_tokens
        keys = (starts[:, :, None] + np.arange(size)).reshape(len(starts), -1)
        for row, table in enumerate(tables):
            if table.cycle:
                own = keys[row]
                own[(own > newest[row]) & (own < NOWHERE)] -= table.cycle
                own[own < table.first] = NOWHERE
        return keys

    def _bias(self, keys: Int64, positions: Int64) -> Tensor:
        """[B, 1, K] for one token a row, [B, G T, K] for more: 0 where a query sees a key."""
        at, key = positions[:, :, None], keys[:, None, :]
        seen = (key <= at) & ((key >= at - self.reach.window) | (key < self.reach.sinks))
        bias = torch.from_numpy(np.where(seen, np.float32(0.0), self._hidden))
        if positions.shape[1] > 1:
            bias = bias.repeat(1, self.group, 1)
        return bias.to(device=self._device, dtype=self._dtype)

    def _turn(self, newest: Int64, tokens: int) -> tuple[Tensor, Tensor] | None:
        if not self.reach.rolling or self.reach.sinks == 0:
            return None
        shift = self.reach.shift(newest)
        if not shift.any():
            return None
        return self.rotary.turns(-np.repeat(shift, tokens), self._dtype, self._device, scaled=False)


def _reached(table: BlockTable, newest: int) -> tuple[Int64, Int64]:
    """Ids and starts of the blocks that hold a position up to `newest`: a ring's later ones are still empty."""
    count = int(np.searchsorted(table.starts, newest, side="right"))
    return table.ids[:count], table.starts[:count]


def _by_block(ids: Int64, starts: Int64) -> tuple[Int64, Int64]:
    """In the order in which the blocks lie in the pool."""
    order = np.argsort(ids)
    return ids[order], starts[order]
