"""Block tables: which blocks of the pool each slot holds under one cache policy. No tensor is computed here."""

from __future__ import annotations

from collections.abc import Sequence

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.engine.block_pool import BlockPool, PoolExhausted
from metronome_cli.engine.block_table import BlockTable, contiguous_ranges
from metronome_cli.engine.cache_policies import RecyclingCache, make_cache_policy


class BlockManager:
    """Block tables of all slots; the user of the class chooses the slot numbers.

    `keep_inputs`: evicted tokens can be recomputed from their inputs. A restart or a restoration marks the positions
    to recompute (`owes`); `PagedDecoder.rebuild` computes them.
    """

    def __init__(
        self, pool: BlockPool, policy: CachePolicySpec, *, chunk: int, keep_inputs: bool, seed: int
    ) -> None:
        self.pool = pool
        self.spec = policy
        self.policy = make_cache_policy(policy, block_tokens=pool.block_tokens, chunk=chunk)
        self.keep_inputs = keep_inputs or isinstance(self.policy, RecyclingCache)
        self._seed = seed
        self._tables: dict[int, BlockTable] = {}
        self._pending: dict[int, list[tuple[int, int]]] = {}  # ranges of positions to recompute

    def open(self, slot: int, age: int = 0) -> None:
        """Open a slot as if it had seen `age` tokens; its resident blocks hold random keys and values.

        Raises PoolExhausted if too few blocks are free; nothing is changed then.
        """
        if slot in self._tables:
            raise ValueError(f"slot {slot} is open already")
        table = BlockTable(self.pool.block_tokens)
        table.length = self._cached_length(age)
        table.base = age - table.length
        starts = self.policy.layout(table.length, table.block_tokens)
        blocks = self.pool.allocate(len(starts))
        self._lay(table, starts, blocks)
        if age:
            self.pool.randomise(blocks, self._seed)
        self._tables[slot] = table

    def close(self, slot: int) -> None:
        """Free a slot's blocks and remove the slot."""
        self.pool.free(self._tables.pop(slot).clear())
        self._pending.pop(slot, None)

    def evict(self, slot: int) -> None:
        """Free all blocks of a slot that stays open, until `restore`."""
        if not self.keep_inputs:
            raise RuntimeError("an evicted slot could not be restored: inputs are not kept")
        self.pool.free(self._tables[slot].clear())
        self._pending.pop(slot, None)

    def restore(self, slot: int, new: int) -> bool:
        """Allocate the blocks of an evicted slot, plus those for `new` tokens; return False if too few are free.

        `PagedDecoder.rebuild` recomputes its resident tokens from their inputs, at their own positions.
        """
        table = self._tables[slot]
        starts = self.policy.layout(table.length, table.block_tokens)
        covered = (
            starts[-1] + table.block_tokens if starts else table.length - table.length % table.block_tokens
        )
        grow = 0 if table.cycle else max(0, -(-(table.length + new - covered) // table.block_tokens))
        if len(starts) + grow > self.pool.free_blocks:
            return False
        self._lay(table, starts, self.pool.allocate(len(starts)))
        if starts:
            table.first = starts[0]
            self._pending[slot] = contiguous_ranges(starts, table.block_tokens, table.length)
        return self.reserve(slot, new)

    def reserve(self, slot: int, new: int) -> bool:
        """Allocate blocks for `new` more tokens, after freeing those that the policy drops; False if too few are
        free."""
        table = self._tables[slot]
        if isinstance(self.policy, RecyclingCache) and self.policy.restarts(table, new):
            if not self._restart(slot, table, self.policy.horizon, new):
                return False
        else:
            self.pool.free(self.policy.release(table))
        try:
            blocks = self.pool.allocate(self.policy.wanted(table, new))
        except PoolExhausted:
            return False
        for block in blocks:
            table.append(block, table.next_start())
        return True

    @property
    def owes(self) -> bool:
        """True if some positions have to be recomputed."""
        return bool(self._pending)

    def rewind(self, slot: int, length: int) -> None:
        """Drop the tokens from position `length` on; the blocks stay allocated.

        Reserve the blocks of tokens that will be rewound before appending them: a block that an earlier token
        attends to must not have been freed since. Raises ValueError if `length` was never reached, or for a policy
        that overwrites or restarts.
        """
        table = self._tables[slot]
        if table.cycle or isinstance(self.policy, RecyclingCache) or self.keep_inputs:
            raise ValueError(f"{self.spec} cannot be rewound")
        if not 0 <= length <= table.length:
            raise ValueError(f"slot {slot} is at {table.length}, not past {length}")
        table.length = length

    def skip(self, slot: int, length: int) -> int:
        """Move a windowed slot to position `length` with its sinks kept and its window empty.

        Returns the length used, a whole number of blocks; the next tokens are appended there. Raises ValueError for
        another policy, before the sinks are filled, or if the window at `length` still holds earlier tokens.
        """
        table, size = self._tables[slot], self.pool.block_tokens
        length = -(-length // size) * size
        if self.spec.kind != "window" or table.length < self.spec.sinks or self.keep_inputs:
            raise ValueError(f"slot {slot}: {self.spec} with {table.length} tokens cannot skip")
        if length <= table.length + self.spec.window:
            raise ValueError(f"slot {slot}: at {length} the window still holds what was seen")
        self.pool.free(table.remove(-(-self.spec.sinks // size), table.count))
        table.length = length
        return length

    def length(self, slot: int) -> int:
        """Return the number of tokens that the slot has seen, resident or not."""
        return self._tables[slot].seen + self._owed(slot)

    def blocks_held(self, slot: int) -> int:
        return self._tables[slot].count

    def blocks_at(self, tokens: int) -> int:
        """Return the blocks that a session holds after `tokens` tokens, for memory planning."""
        return len(self.policy.layout(self._cached_length(tokens), self.pool.block_tokens))

    def _restart(self, slot: int, table: BlockTable, horizon: int, new: int) -> bool:
        """Restart at position 0 with the newest `horizon` tokens, which have to be recomputed."""
        needed = -(-(horizon + new) // table.block_tokens)
        if needed > self.pool.free_blocks + table.count:
            return False
        self.pool.free(table.clear())
        table.base += table.length - horizon
        table.length = 0
        starts = self.policy.layout(horizon, table.block_tokens)
        self._lay(table, starts, self.pool.allocate(len(starts)))
        self._pending[slot] = [(0, horizon)]
        for block in self.pool.allocate(needed - len(starts)):
            table.append(block, table.next_start())
        return True

    def _owed(self, slot: int) -> int:
        ranges = self._pending.get(slot)
        return ranges[-1][1] - self._tables[slot].length if ranges else 0

    def _lay(self, table: BlockTable, starts: Sequence[int], blocks: Sequence[int]) -> None:
        for start, block in zip(starts, blocks, strict=True):
            table.append(block, start)
        if self.spec.kind == "ring":
            table.cycle = table.count * table.block_tokens

    def _cached_length(self, seen: int) -> int:
        return self.policy.restarted_length(seen) if isinstance(self.policy, RecyclingCache) else seen
