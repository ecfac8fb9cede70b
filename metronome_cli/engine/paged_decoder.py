"""A decoder on a KV pool: slots (engine/block_manager.py) and layers tied together for a model to drive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from metronome_cli.config.cache_policy import CachePolicySpec, SinkPositions
from metronome_cli.core.errors import UsageError
from metronome_cli.engine.attention import PagedAttention, kernels_available
from metronome_cli.engine.attention_span import AttentionSpan
from metronome_cli.engine.block_manager import BlockManager
from metronome_cli.engine.block_pool import BlockPool
from metronome_cli.engine.block_table import BlockTable
from metronome_cli.engine.cache_policies import EVERYTHING, RecyclingCache
from metronome_cli.engine.cuda_graphs import TableRunner, on_device
from metronome_cli.engine.failures import check_finite
from metronome_cli.engine.input_log import InputLog, input_log_size
from metronome_cli.engine.rotary import Rotary
from metronome_cli.engine.step_plan import StepPlan, StepPlanner
from metronome_cli.engine.step_table import TablePlan, TablePlanner

REBUILD_CHUNK = 256  # tokens of one slot that a recomputation runs at once


class DecoderLayers(Protocol):
    """A way through the layers: `engine.fast.FastLayers` or `engine.general.GeneralLayers`."""

    name: str
    hidden_size: int
    rotary: Rotary
    can_roll: bool  # keys can be turned by `rotary`, so attention sinks can roll
    bounded_positions: bool  # positions end at the model's context, however little is kept
    native_window: int | None
    group: int  # query heads a KV head
    attention: PagedAttention
    captures: bool  # whether a CUDA graph can hold a forward

    def run(self, embeds: Tensor, plan: StepPlan | TablePlan) -> Tensor:
        """[B, T, hidden] -> the final-normed hidden state of each row's last valid token, [B, hidden]."""


class PagedDecoder(BlockManager):
    """Implements `engine.interface.CachedDecoder`: slots, and layers that run on what they hold.

    `context`: positions that the model was made for; `passes_context` compares with it. `chunk`: tokens that
    one forward brings at most (a ring keeps room for them). `keep_inputs`: remember input embeddings, so that
    an evicted slot can be restored; `recycle` does so in any case.
    """

    def __init__(
        self,
        layers: DecoderLayers,
        pool: BlockPool,
        policy: CachePolicySpec,
        *,
        sink_positions: SinkPositions = "rolling",
        context: int | None = None,
        chunk: int = 1,
        keep_inputs: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(pool, policy, chunk=chunk, keep_inputs=keep_inputs, seed=seed)
        self.layers = layers
        native = EVERYTHING if layers.native_window is None else layers.native_window - 1
        self.reach = AttentionSpan(
            self.policy.sinks, min(self.policy.window, native), rolling=sink_positions == "rolling"
        )
        if self.reach.sinks and self.reach.rolling and not layers.can_roll:
            raise UsageError(
                f"{policy}: attention sinks cannot roll with this model's positions",
                hint="window(W) keeps no sinks; `--sink-positions absolute` does not move them",
            )
        self._planner = StepPlanner(pool, layers.group, layers.rotary, self.reach)
        self._chunk = chunk
        self._on_gpu: TableRunner | None = None
        if pool.data.device.type == "cuda" and kernels_available():
            self.run_by_table()
        self.context = context
        self.hidden_size = layers.hidden_size
        self.device = pool.data.device
        self.dtype = pool.data.dtype
        self._inputs: dict[int, InputLog] = {}
        self._kept_inputs = input_log_size(self.policy, pool.block_tokens)

    def run_by_table(self) -> None:
        """Make tables instead of plans and attend by the Triton kernel, as on a GPU."""
        planner = TablePlanner(self.pool, self.layers.rotary, self.reach)
        self._on_gpu = TableRunner(self.layers.run, planner, self.layers.hidden_size, self.pool.data.dtype)

    def capture(self, slots: int) -> None:
        """Capture the CUDA graphs of up to `slots` sessions: of a decoded token, and of a frame's prefill with and
        without the token left from the frame before. Does nothing on a CPU. Raises DeviceMemoryError.
        """
        if self._on_gpu is not None and self.layers.captures and self.device.type == "cuda":
            self._on_gpu.capture(slots, (1, self._chunk - 1, self._chunk))

    def open(self, slot: int, age: int = 0) -> None:
        """As `Slots.open`; raises PoolExhausted."""
        super().open(slot, age)
        if self.keep_inputs:
            self._inputs[slot] = InputLog(
                self.hidden_size, **self._kept_inputs, born=age, seed=self._seed + 7919 * slot
            )

    def close(self, slot: int) -> None:
        """Free a slot's blocks at once and forget it."""
        super().close(slot)
        self._inputs.pop(slot, None)

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
        if isinstance(self.policy, RecyclingCache):  # it restarts before a query sees farther than this
            newest = min(newest, 2 * self.policy.horizon - 1)
        bounded = (self.reach.rolling or self.reach.sinks == 0) and not self.layers.bounded_positions
        farthest = min(newest, self.reach.window + self.reach.sinks) if bounded else newest
        return farthest >= self.context

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
            **self._described_graphs(),
        }

    def _described_graphs(self) -> dict[str, Any]:
        if self._on_gpu is None:
            return {}
        return {"cuda_graphs": len(self._on_gpu.captured), "cuda_graphs_s": self._on_gpu.capture_s}

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
        if self._on_gpu is not None:
            with on_device(self.device):
                hidden = self._on_gpu.run(tables, counts, embeds, every=every)
        else:
            plan = self._planner.plan(tables, counts, embeds.shape[1])
            if every:
                last = torch.arange(plan.batch * plan.tokens, device=self.device)
                plan = replace(plan, last=last, every=True)
            hidden = self.layers.run(embeds, plan)
        check_finite(hidden, "a hidden state")
        for table, count in zip(tables, counts, strict=True):
            table.length += count
        return hidden

    def _past(self, log: InputLog, table: BlockTable, start: int, stop: int) -> Tensor:
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        return log.rows(table.base + start, table.base + stop, like).unsqueeze(0)
