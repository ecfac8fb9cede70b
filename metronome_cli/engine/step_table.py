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
from metronome_cli.engine.block_pool import SCRATCH
from metronome_cli.engine.block_table import BlockTable

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


def to_device(array: Int32, device: torch.device) -> Tensor:
    """One copy that does not wait: from pinned memory, which PyTorch does not hand out again before it is done."""
    host = torch.from_numpy(array)
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)
