"""What of a session stays in the pool: policies as edits of a block table.

A query at position t attends [0, sinks) and [t - window, t]; a policy says both numbers, which blocks may go
before the next token comes, and how many a session of some age holds. The step knows only the numbers.
"""

from __future__ import annotations

from typing import Protocol

from metronome_cli.config.cache_policy import CachePolicySpec, ring_blocks
from metronome_cli.engine.block_table import BlockTable

EVERYTHING = 1 << 60  # a window wider than any session


class CachePolicy(Protocol):
    """Table edits of one policy. `max_chunk`: most tokens one forward may bring."""

    sinks: int
    window: int
    max_chunk: int

    def release(self, table: BlockTable) -> list[int]:
        """Blocks, taken out of the table, that no query from position `length` on can see."""

    def wanted(self, table: BlockTable, new: int) -> int:
        """Blocks to add, after `release`, before `new` more tokens fit."""

    def layout(self, length: int, block_tokens: int) -> list[int]:
        """Starts of the blocks held by a session that has `length` positions behind it."""


def _grow_by(table: BlockTable, new: int) -> int:
    missing = table.length + new - table.next_start()
    return max(0, -(-missing // table.block_tokens)) if new else 0


class UnboundedCache:
    """Every token stays."""

    sinks = 0
    window = EVERYTHING
    max_chunk = EVERYTHING

    def release(self, table: BlockTable) -> list[int]:
        return []

    def wanted(self, table: BlockTable, new: int) -> int:
        return _grow_by(table, new)

    def layout(self, length: int, block_tokens: int) -> list[int]:
        return list(range(0, length, block_tokens))


class SlidingWindow:
    """`window(W, S)`: a block wholly outside [0, S) and [t - W, t] goes when no later query can see it."""

    max_chunk = EVERYTHING

    def __init__(self, window: int, sinks: int) -> None:
        self.window = window
        self.sinks = sinks

    def release(self, table: BlockTable) -> list[int]:
        kept = -(-self.sinks // table.block_tokens)  # blocks with a sink in them come first
        edge = table.length - self.window  # the oldest position the next query sees
        gone = kept
        starts = table.starts
        while gone < table.count and starts[gone] + table.block_tokens <= edge:
            gone += 1
        return table.remove(kept, gone) if gone > kept else []

    def wanted(self, table: BlockTable, new: int) -> int:
        return _grow_by(table, new)

    def layout(self, length: int, block_tokens: int) -> list[int]:
        sink_end = min(-(-self.sinks // block_tokens) * block_tokens, length)
        edge = max(0, length - self.window)
        slide = max(sink_end, edge - edge % block_tokens)
        sinks = range(0, sink_end, block_tokens)
        return [*sinks, *range(slide, length, block_tokens)]


class RingBuffer:
    """`ring(W)`: blocks reserved when the slot opens and reused in a circle; attends [t - W + 1, t].

    The circle has room for W positions and the tokens that one forward adds, so that the first query of a
    chunk still finds its whole window: ceil((W + chunk - 1) / block_tokens) blocks. A chunk of 1 needs W
    exactly.
    """

    sinks = 0

    def __init__(self, window: int, chunk: int, block_tokens: int) -> None:
        self.window = window - 1
        self.blocks = ring_blocks(window, chunk, block_tokens)
        self.max_chunk = self.blocks * block_tokens - window + 1

    def release(self, table: BlockTable) -> list[int]:
        return []

    def wanted(self, table: BlockTable, new: int) -> int:
        return self.blocks - table.count

    def layout(self, length: int, block_tokens: int) -> list[int]:
        first = max(0, -(-length // block_tokens) - self.blocks)
        return [(first + i) * block_tokens for i in range(self.blocks)]


class RecyclingCache(UnboundedCache):
    """`recycle(W)`: grows to 2 W, then the stack restarts it at position 0 with its newest W tokens
    recomputed.
    """

    def __init__(self, window: int) -> None:
        self.horizon = window

    def restarts(self, table: BlockTable, new: int) -> bool:
        """Whether `new` more tokens would pass 2 W."""
        return table.length + new > 2 * self.horizon and table.length > self.horizon

    def restarted_length(self, seen: int) -> int:
        """Positions in the cache after `seen` tokens in all: at most 2 W, back to W at each restart."""
        return (
            seen
            if seen <= 2 * self.horizon
            else self.horizon + 1 + (seen - 2 * self.horizon - 1) % self.horizon
        )


def make_cache_policy(spec: CachePolicySpec, *, block_tokens: int, chunk: int = 1) -> CachePolicy:
    """The policy that a spec names. `chunk`: tokens that one forward brings at most (sizes a ring)."""
    if spec.kind == "window":
        return SlidingWindow(spec.window, spec.sinks)
    if spec.kind == "ring":
        return RingBuffer(spec.window, chunk, block_tokens)
    if spec.kind == "recycle":
        return RecyclingCache(spec.window)
    return UnboundedCache()
