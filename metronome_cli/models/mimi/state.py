"""What a streaming codec remembers of each session between frames.

Two kinds. *Contexts*: the last few columns that each convolution will need again, and the tail that each
transposed convolution has yet to add; a few thousand numbers in all, so that one row a slot holds every
convolution's, gathered once a frame and put back once. *Rings*: the transformers' keys and values
(transformer.py), large, written in place. Both are tables indexed by slot; opening a slot clears its row
alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MOST_SPARE = 16  # rows added beyond need when a table grows


class RowLayout:
    """Hands out spans of a row to the convolutions that will share it."""

    def __init__(self) -> None:
        self.width = 0

    def take(self, columns: int, channels: int) -> RowSpan:
        """Room for `columns` x `channels` numbers."""
        span = RowSpan(self.width, columns, channels)
        self.width += columns * channels
        return span


class RowSpan:
    """One convolution's part of a row."""

    __slots__ = ("channels", "columns", "start", "stop")

    def __init__(self, start: int, columns: int, channels: int) -> None:
        self.start = start
        self.stop = start + channels * columns
        self.channels = channels
        self.columns = columns

    def of(self, rows: Tensor) -> Tensor:
        """rows: [batch, width] -> a view [batch, columns, channels]."""
        return rows[:, self.start : self.stop].view(-1, self.columns, self.channels)


class CodecRows:
    """A table with one row a slot, growing as higher slots are opened."""

    def __init__(self, shape: Sequence[int], device: torch.device, dtype: torch.dtype) -> None:
        self.data = torch.zeros((0, *shape), device=device, dtype=dtype)

    def open(self, slot: int) -> None:
        """Clear the slot's row, adding rows if there is none yet."""
        held = self.data.shape[0]
        if slot >= held:
            more = max(slot + 1 - held, min(held // 2, _MOST_SPARE))
            self.data = torch.cat([self.data, self.data.new_zeros((more, *self.data.shape[1:]))])
        else:
            self.data[slot].zero_()

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of one row."""
        return math.prod(self.data.shape[1:]) * self.data.element_size()
