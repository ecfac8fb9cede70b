"""State of many sessions in one tensor, one row a slot."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metronome_cli.engine.transfer import to_device

_FIRST_ROWS = 16


class SlotRows:
    """[rows, width] float32 that grows as slots open. A fresh slot's row is zeros; no other row is
    touched."""

    def __init__(self, width: int, device: torch.device) -> None:
        self._data = torch.zeros(_FIRST_ROWS, width, device=device)
        self._row: dict[int, int] = {}
        self._free = list(range(_FIRST_ROWS))[::-1]

    def open(self, slot: int) -> None:
        """Raises ValueError for a slot that is open."""
        if slot in self._row:
            raise ValueError(f"slot {slot} is open already")
        if not self._free:
            self._grow()
        self._row[slot] = self._free.pop()
        self._data[self._row[slot]] = 0.0

    def close(self, slot: int) -> None:
        self._free.append(self._row.pop(slot))

    def take(self, slots: Sequence[int]) -> Tensor:
        """[len(slots), width], copied."""
        return self._data.index_select(0, self._rows(slots))

    def put(self, slots: Sequence[int], values: Tensor) -> None:
        """values: [len(slots), width]."""
        self._data.index_copy_(0, self._rows(slots), values)

    def _rows(self, slots: Sequence[int]) -> Tensor:
        return to_device([self._row[slot] for slot in slots], self._data.device)

    def _grow(self) -> None:
        rows = len(self._data)
        self._data = torch.cat((self._data, torch.zeros_like(self._data)))
        self._free = list(range(rows, 2 * rows))[::-1]
