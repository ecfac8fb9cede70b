"""A decoder on a KV pool: tables, policy and layers tied together for a model to drive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from metronome_cli.config.policy import PolicySpec, SinkPositions
from metronome_cli.engine.attention import PagedAttention
from metronome_cli.engine.faults import check_finite
from metronome_cli.engine.inputs import InputLog, kept_inputs
from metronome_cli.engine.plan import Planner, Reach, StepPlan
from metronome_cli.engine.pool import BlockPool, PoolExhausted
from metronome_cli.engine.residency import EVERYTHING, Recycle, residency
from metronome_cli.engine.rotary import Rotary
from metronome_cli.engine.table import BlockTable, covered_runs

REBUILD_CHUNK = 256  # tokens of one slot that a recomputation runs at once


class Layers(Protocol):
    """A way through the layers: `engine.fast.FastLayers` or `engine.general.GeneralLayers`."""

    name: str
    hidden_size: int
    rotary: Rotary
    native_window: int | None
    group: int  # query heads a KV head
    attention: PagedAttention
    bucket: Callable[[int], int] | None  # sizes that it wants batch and blocks padded to

    def run(self, embeds: Tensor, plan: StepPlan) -> Tensor:
        """[B, T, hidden] -> the final-normed hidden state of each row's last valid token, [B, hidden]."""


class PagedStack:
    """Implements `models.base.Stack`. Slots are numbers that the caller chooses.

    `context`: positions that the model was made for; `passes_context` compares with it. `chunk`: tokens that
    one forward brings at most (a ring keeps room for them). `keep_inputs`: remember input embeddings, so that
    an evicted slot can be restored; `recycle` does so in any case.
    """

    def __init__(
        self,
        layers: Layers,
        pool: BlockPool,
        policy: PolicySpec,
        *,
        sink_positions: SinkPositions = "rolling",
        context: int | None = None,
        chunk: int = 1,
        keep_inputs: bool = False,
        seed: int = 0,
    ) -> None:
        self.layers = layers
        self.pool = pool
        self.spec = policy
        self.policy = residency(policy, block_tokens=pool.block_tokens, chunk=chunk)
        native = EVERYTHING if layers.native_window is None else layers.native_window - 1
        self.reach = Reach(
            self.policy.sinks, min(self.policy.window, native), rolling=sink_positions == "rolling"
        )
        self._planner = Planner(pool, layers.group, layers.rotary, self.reach, bucket=layers.bucket)
        self.context = context
        self.hidden_size = layers.hidden_size
        self.device = pool.data.device
        self.dtype = pool.data.dtype
        self.keep_inputs = keep_inputs or isinstance(self.policy, Recycle)
        self._seed = seed
        self._tables: dict[int, BlockTable] = {}
        self._inputs: dict[int, InputLog] = {}
        self._pending: dict[int, list[tuple[int, int]]] = {}  # ranges of positions to recompute
        self._kept_inputs = kept_inputs(self.policy, pool.block_tokens)

    # -- seats --

    def open(self, slot: int, age: int = 0) -> None:
        """Give a slot a table, as if it had lived `age` tokens: its resident blocks hold random keys and
        values.

        Raises PoolExhausted, leaving nothing behind, when its blocks are not free.
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
        if self.keep_inputs:
            self._inputs[slot] = InputLog(
                self.hidden_size, **self._kept_inputs, born=age, seed=self._seed + 7919 * slot
            )

    def close(self, slot: int) -> None:
        """Free a slot's blocks at once and forget it."""
        self.pool.free(self._tables.pop(slot).clear())
        self._inputs.pop(slot, None)
        self._pending.pop(slot, None)

    def evict(self, slot: int) -> None:
        """Take all blocks from a slot that stays open; `restore` brings it back."""
        if not self.keep_inputs:
            raise RuntimeError("an evicted slot could not be restored: inputs are not kept")
        self.pool.free(self._tables[slot].clear())
        self._pending.pop(slot, None)

    def restore(self, slot: int, new: int) -> bool:
        """Give an evicted slot the blocks that its policy holds, and `new` tokens' room; False if not free.

        Its resident tokens are recomputed from their inputs by `rebuild`, at their own positions.
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
            self._pending[slot] = covered_runs(starts, table.block_tokens, table.length)
        return self.reserve(slot, new)

    # -- room --

    def reserve(self, slot: int, new: int) -> bool:
        """Room for `new` more tokens. Frees what the policy lets go first; False when too few blocks are
        free.
        """
        table = self._tables[slot]
        if isinstance(self.policy, Recycle) and self.policy.restarts(table, new):
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
        """Whether `rebuild` has something to do."""
        return bool(self._pending)

    def rebuild(self) -> int:
        """Recompute what restarts and restorations left to do; the tokens recomputed."""
        done = 0
        for slot in list(self._pending):
            table, log = self._tables[slot], self._inputs[slot]
            ranges = self._pending.pop(slot)
            for start, stop in ranges:
                for at in range(start, stop, REBUILD_CHUNK):
                    upto = min(stop, at + REBUILD_CHUNK)
                    table.length = at
                    self._append([slot], self._past(log, table, at, upto), [upto - at])
                    done += upto - at
        return done

    def passes_context(self, slot: int, new: int) -> bool:
        """Whether `new` more tokens would make a query attend a key farther back than the model's context.

        Where distances stay bounded (rolling sinks, no sinks, a ring) a session of any age is within it.
        """
        if self.context is None:
            return False
        newest = self._tables[slot].length + self._owed(slot) + new - 1
        if isinstance(self.policy, Recycle):  # it restarts before a query sees farther than this
            newest = min(newest, 2 * self.policy.horizon - 1)
        bounded = self.reach.rolling or self.reach.sinks == 0
        farthest = min(newest, self.reach.window + self.reach.sinks) if bounded else newest
        return farthest >= self.context

    # -- the model's side --

    def forward(self, slots: Sequence[int], embeds: Tensor, counts: Sequence[int]) -> Tensor:
        """Append tokens to slots: embeds [B, T, hidden], row b valid up to counts[b] -> [B, hidden], the
        final-normed hidden state of each row's last valid token. Raises IndexError where no room was
        reserved.
        """
        if self._pending:
            self.rebuild()
        hidden = self._in_chunks(slots, embeds, counts)
        if self.keep_inputs:
            for row, slot in enumerate(slots):
                self._inputs[slot].append(embeds[row, : counts[row]])
        return hidden

    def states(self, slot: int, embeds: Tensor) -> Tensor:
        """Append one slot's tokens, [T, hidden], in one forward -> the final-normed hidden state of each,
        [T, hidden].

        Rolling sinks stand where the last of the T tokens has them: T well below the window keeps that exact
        enough. Raises ValueError for more tokens than the policy takes in one forward.
        """
        if self._pending:
            self.rebuild()
        if len(embeds) > self.policy.max_chunk:
            raise ValueError(
                f"{len(embeds)} tokens in one forward; {self.spec} takes {self.policy.max_chunk}"
            )
        states = self._append([slot], embeds[None], [len(embeds)], every=True)[: len(embeds)]
        if self.keep_inputs:
            self._inputs[slot].append(embeds)
        return states

    def rewind(self, slot: int, length: int) -> None:
        """Forget the tokens from `length` on. Blocks stay: nothing that an earlier token sees may have been
        released since, so reserve the room for what will be taken back before appending it.

        Raises ValueError for a length that was never reached, or a policy that writes over or restarts.
        """
        table = self._tables[slot]
        if table.cycle or isinstance(self.policy, Recycle) or self.keep_inputs:
            raise ValueError(f"{self.spec} cannot be rewound")
        if not 0 <= length <= table.length:
            raise ValueError(f"slot {slot} is at {table.length}, not past {length}")
        table.length = length

    def skip(self, slot: int, length: int) -> int:
        """Let a windowed slot seem to have seen `length` tokens, its sinks kept and its window empty; the
        length taken, a whole number of blocks. What is appended next stands at the positions of that age.

        Raises ValueError for another policy, before the sinks are there, or where the window would not have
        slid past all that was seen.
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
        """Tokens the slot has seen, resident or not."""
        return self._tables[slot].seen + self._owed(slot)

    def blocks_held(self, slot: int) -> int:
        return self._tables[slot].count

    def blocks_at(self, tokens: int) -> int:
        """Blocks that a session holds when it has seen `tokens`, for planning memory."""
        return len(self.policy.layout(self._cached_length(tokens), self.pool.block_tokens))

    def describe(self) -> dict[str, Any]:
        """Path through the layers, device, dtype, pool and policy."""
        return {
            "path": self.layers.name,
            "device": str(self.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "policy": str(self.spec),
            "sink_positions": "rolling" if self.reach.rolling else "absolute",
            "pool_blocks": self.pool.total,
            "block_tokens": self.pool.block_tokens,
            "pool_bytes": self.pool.block_bytes * self.pool.total,
        }

    # -- inside --

    def _in_chunks(self, slots: Sequence[int], embeds: Tensor, counts: Sequence[int]) -> Tensor:
        step, tokens = self.policy.max_chunk, embeds.shape[1]
        if tokens <= step:
            return self._append(slots, embeds, counts)
        hidden = embeds.new_zeros(len(slots), self.hidden_size)
        for at in range(0, tokens, step):
            rows = [row for row, count in enumerate(counts) if count > at]
            part = [min(counts[row] - at, step) for row in rows]
            piece = embeds[rows, at : at + max(part)]
            hidden[rows] = self._append([slots[row] for row in rows], piece, part)
        return hidden

    @torch.inference_mode()
    def _append(
        self, slots: Sequence[int], embeds: Tensor, counts: Sequence[int], *, every: bool = False
    ) -> Tensor:
        """The last valid token's state of each row, [B, hidden], or `every` token's, [B T, hidden]."""
        tables = [self._tables[slot] for slot in slots]
        for table, count in zip(tables, counts, strict=True):
            table.turn(count)
        plan = self._planner.plan(tables, counts, embeds.shape[1])
        if plan.batch > len(tables):
            embeds = torch.cat((embeds, embeds.new_zeros(plan.batch - len(tables), *embeds.shape[1:])))
        if every:
            plan = replace(plan, last=torch.arange(plan.batch * plan.tokens, device=self.device), every=True)
            hidden = self.layers.run(embeds, plan)
        else:
            hidden = self.layers.run(embeds, plan)[: len(tables)]
        check_finite(hidden, "a hidden state")
        for table, count in zip(tables, counts, strict=True):
            table.length += count
        return hidden

    def _restart(self, slot: int, table: BlockTable, horizon: int, new: int) -> bool:
        """Begin again at position 0 with the newest `horizon` tokens, to be recomputed."""
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
        return self.policy.restarted_length(seen) if isinstance(self.policy, Recycle) else seen

    def _past(self, log: InputLog, table: BlockTable, start: int, stop: int) -> Tensor:
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        return log.rows(table.base + start, table.base + stop, like).unsqueeze(0)
