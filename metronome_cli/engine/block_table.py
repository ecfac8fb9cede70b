"""One slot's block table: which blocks it holds, in order of position, and how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


class BlockTable:
    """Blocks sorted by the position of their first token, always a multiple of `block_tokens`.

    - `length`: the position the next token gets; also the number of tokens since position 0.
    - `base`: tokens that were seen before position 0, when a policy restarted the slot. `seen` counts all.
    - `cycle`: tokens in the whole circle of a ring, 0 elsewhere. A ring's newest block still holds, past the
      last token written, the keys that were written one cycle earlier.
    - `first`: no key before this position exists (a restored ring lost its oldest, half overwritten block).
    """

    __slots__ = ("_ids", "_starts", "base", "block_tokens", "count", "cycle", "first", "length")

    def __init__(self, block_tokens: int, capacity: int = 16) -> None:
        self.block_tokens = block_tokens
        self.length = 0
        self.base = 0
        self.cycle = 0
        self.first = 0
        self.count = 0
        self._ids: Int64 = np.zeros(capacity, dtype=np.int64)
        self._starts: Int64 = np.zeros(capacity, dtype=np.int64)

    @property
    def ids(self) -> Int64:
        """[count] block ids."""
        return self._ids[: self.count]

    @property
    def starts(self) -> Int64:
        """[count] position of each block's first token, ascending."""
        return self._starts[: self.count]

    @property
    def seen(self) -> int:
        return self.base + self.length

    @property
    def room(self) -> int:
        """Positions from `length` on that the blocks held can take."""
        if self.count == 0:
            return 0
        return max(0, int(self._starts[self.count - 1]) + self.block_tokens - self.length)

    def next_start(self) -> int:
        """Where the next block to be appended starts: after the last one, or at the block of `length`."""
        aligned = self.length - self.length % self.block_tokens
        if self.count == 0:
            return aligned
        return max(aligned, int(self._starts[self.count - 1]) + self.block_tokens)

    def append(self, block: int, start: int) -> None:
        """Add a block that starts at `start`, later than all others."""
        if self.count == len(self._ids):
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._starts = np.concatenate((self._starts, np.zeros_like(self._starts)))
        self._ids[self.count] = block
        self._starts[self.count] = start
        self.count += 1

    def remove(self, first: int, last: int) -> list[int]:
        """Take the entries [first, last) out; their block ids."""
        taken: list[int] = self._ids[first:last].tolist()
        if taken:
            for array in (self._ids, self._starts):
                array[first : self.count - len(taken)] = array[last : self.count].copy()
            self.count -= len(taken)
        return taken

    def clear(self) -> list[int]:
        """Take every block out; `length` and `base` stay."""
        return self.remove(0, self.count)

    def turn(self, count: int) -> None:
        """In a ring, move blocks from the front to the end until `count` more tokens fit."""
        while self.cycle and self.room < count:
            start = int(self._starts[0]) + self.cycle
            self.append(self.remove(0, 1)[0], start)

    def rows(self, count: int) -> Int64:
        """[count] pool rows (block x block_tokens + offset) of the next `count` positions.

        Raises IndexError when the blocks held do not cover them.
        """
        size = self.block_tokens
        if count == 1:
            last = self.count - 1
            if last >= 0 and 0 <= self.length - self._starts[last] < size:  # the common decode step
                row = self._ids[last] * size + self.length - self._starts[last]
                return np.asarray([row], dtype=np.int64)
        positions = np.arange(self.length, self.length + count)
        if self.cycle:  # the last rows of a block that turned belong to the round before
            positions[positions < self._starts[0]] += self.cycle
        entries = np.searchsorted(self.starts, positions, side="right") - 1
        if count and (self.count == 0 or entries[0] < 0):
            raise IndexError("no block is reserved for these positions")
        offsets = positions - self._starts[entries]
        if count and int(offsets.max()) >= size:
            raise IndexError("no block is reserved for these positions")
        return self._ids[entries] * size + offsets


def contiguous_ranges(starts: Sequence[int], block_tokens: int, length: int) -> list[tuple[int, int]]:
    """Runs of positions below `length` that blocks cover: [0, 16, 64], 16, 70 -> [(0, 32), (64, 70)]."""
    breaks = [i + 1 for i, (a, b) in enumerate(pairwise(starts)) if b != a + block_tokens]
    runs = [starts[a:b] for a, b in pairwise([0, *breaks, len(starts)])]
    return [(run[0], min(length, run[-1] + block_tokens)) for run in runs if run and run[0] < length]
