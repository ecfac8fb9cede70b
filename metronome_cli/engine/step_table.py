"""What a GPU needs of one forward: a few int32 numbers a session and two a block, in one copy from pinned memory.

Masks, positions, angles and rows are made of it on the device. The layout depends on batch and tokens alone,
so a captured graph finds everything where it was, however old the sessions are:

    rows    [batch, ROW_FIELDS]   see `Field`
    writes  [batch x tokens]      pool row (block x block_tokens + offset) of each new token
    blocks  [entries, 2]          block id and position of its first token, session after session
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metronome_cli.engine.attention_span import AttentionSpan
from metronome_cli.engine.block_pool import SCRATCH, BlockPool
from metronome_cli.engine.block_table import BlockTable
from metronome_cli.engine.rotary import Rotary

Int32 = npt.NDArray[np.int32]
ROW_FIELDS = 8
FARTHEST = 1 << 30  # a window wider than this is none


class Field(IntEnum):
    """Columns of `rows`. The first six are read by the kernel (engine/paged_kernel.py), in this order."""

    ENTRY = 0  # of `blocks`, where the session's begin
    COUNT = 1  # blocks that hold a position up to NEWEST
    LENGTH = 2  # position of the first new token
    NEWEST = 3  # position of the last
    CYCLE = 4  # tokens in a ring's circle; 0: no ring
    FIRST = 5  # no key before this position exists
    VALID = 6  # new tokens; the others of `tokens` are padding
    SHIFT = 7  # positions by which rolling sinks have moved


@dataclass(frozen=True, slots=True)
class StepTable:
    """The three parts on the device, and what they are cut by."""

    batch: int
    tokens: int
    rows: Tensor
    writes: Tensor
    blocks: Tensor

    @classmethod
    def of(cls, flat: Tensor, batch: int, tokens: int) -> StepTable:
        """flat: int32 as `pack` lays it out; what follows the entries is never read."""
        start, stop = batch * ROW_FIELDS, batch * ROW_FIELDS + batch * tokens
        rows, writes = flat[:start].view(batch, ROW_FIELDS), flat[start:stop]
        entries = flat[_aligned(stop) :]
        return cls(batch, tokens, rows, writes, entries[: len(entries) // 2 * 2].view(-1, 2))

    def column(self, field: Field) -> Tensor:
        """[batch], int64."""
        return self.rows[:, field].long()


def pack(
    tables: Sequence[BlockTable], counts: Sequence[int], batch: int, tokens: int, reach: AttentionSpan
) -> Int32:
    """The table of appending counts[b] <= tokens tokens to each of `tables`, padded to `batch` rows.

    Padding attends nothing and writes to the scratch block. Raises IndexError if a table holds no block for
    a token.
    """
    rows = np.zeros((batch, ROW_FIELDS), dtype=np.int32)
    writes = np.full((batch, tokens), SCRATCH, dtype=np.int32)  # row 0 of the scratch block
    entries: list[Int32] = []
    at = 0
    for row, (table, count) in enumerate(zip(tables, counts, strict=True)):
        newest = table.length + count - 1
        held = int(np.searchsorted(table.starts, newest, side="right"))
        shift = max(0, newest - reach.sinks - reach.window) if reach.rolling and reach.sinks else 0
        rows[row] = (at, held, table.length, newest, table.cycle, table.first, count, shift)
        writes[row, :count] = table.rows(count)
        entries.append(np.stack((table.ids[:held], table.starts[:held]), axis=1, dtype=np.int32))
        at += held
    head = np.zeros(_aligned(rows.size + writes.size), dtype=np.int32)
    head[: rows.size] = rows.reshape(-1)
    head[rows.size : rows.size + writes.size] = writes.reshape(-1)
    return np.concatenate((head, *(part.reshape(-1) for part in entries)), dtype=np.int32)


def capacity(batch: int, tokens: int, entries: int) -> int:
    """Numbers that the longest table of that batch has."""
    return _aligned(batch * (ROW_FIELDS + tokens)) + 2 * entries


def _aligned(numbers: int) -> int:
    return -(-numbers // 4) * 4  # to 16 bytes


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The tensors of one forward, made on the device; see `step_plan.StepPlan` for those of the same name.

    turn: [batch, 2, head_dim] float32, cosine and signed sine that turn a query back by the sinks' shift.
    None if sinks do not roll.
    """

    batch: int
    tokens: int
    positions: Tensor
    cos: Tensor
    sin: Tensor
    write_rows: Tensor
    last: Tensor
    turn: Tensor | None
    table: StepTable
    span: AttentionSpan
    every: bool = False


class TablePlanner:
    """Makes tables on the host, and plans of them on the device, for one decoder on one pool."""

    def __init__(self, pool: BlockPool, rotary: Rotary, span: AttentionSpan) -> None:
        self.pool = pool
        self.span = span
        self.device, self._dtype = pool.data.device, pool.data.dtype
        self._scaling = rotary.scaling
        self._frequencies = torch.from_numpy(rotary.inv_freq).to(self.device)  # [head_dim / 2], float64

    def pack(self, tables: Sequence[BlockTable], counts: Sequence[int], batch: int, tokens: int) -> Int32:
        """See `pack`."""
        return pack(tables, counts, batch, tokens, self.span)

    def plan(self, flat: Tensor, batch: int, tokens: int, *, every: bool = False) -> TablePlan:
        """The plan of a packed table that lies on the device. Nothing in it waits for the device."""
        table = StepTable.of(flat, batch, tokens)
        steps = torch.arange(tokens, device=self.device)
        positions = table.column(Field.LENGTH)[:, None] + steps
        cos, sin = self._angles(positions.reshape(-1), self._scaling)
        ends = table.column(Field.VALID).clamp(min=1) - 1
        last = torch.arange(batch, device=self.device) * tokens + ends
        if every:
            last = torch.arange(batch * tokens, device=self.device)
        turn = None
        if self.span.rolling and self.span.sinks:
            turn = torch.stack(self._angles(-table.column(Field.SHIFT), 1.0), dim=1)
        return TablePlan(
            batch=batch,
            tokens=tokens,
            positions=positions,
            cos=cos.to(self._dtype).unsqueeze(1),
            sin=sin.to(self._dtype).unsqueeze(1),
            write_rows=table.writes.long(),
            last=last,
            turn=turn,
            table=table,
            span=self.span,
            every=every,
        )

    def _angles(self, positions: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
        """positions: [n] -> cosine and signed sine, [n, head_dim] float32 each, formed in float64."""
        angles = positions[:, None] * self._frequencies
        cos, sin = angles.cos() * scaling, angles.sin() * scaling
        return torch.cat((cos, cos), 1).float(), torch.cat((-sin, sin), 1).float()
