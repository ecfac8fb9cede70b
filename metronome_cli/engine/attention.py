"""Paged attention: write new keys and values into their rows, gather the resident blocks, attend.

The query heads that share a KV head are stacked as query rows, so one batched product serves a whole batch:
[kv_heads x batch, group x tokens, dim] against [kv_heads x batch, keys, dim].

Rolling sinks. A sink key must seem to follow the window at a constant distance. Turning key p forward by the
shift equals turning the query back by it (rotations compose), so the pool keeps the key where it is, nothing
is re-rounded as the session ages, and a second, turned query scores the sink rows.

On a GPU nothing is gathered: a kernel reads the blocks where they lie (engine/paged_kernel.py).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from metronome_cli.engine.block_pool import BlockPool
from metronome_cli.engine.rotary import rotate
from metronome_cli.engine.step_plan import StepPlan
from metronome_cli.engine.step_table import FARTHEST, TablePlan


@cache
def kernels_available() -> bool:
    """True if Triton is installed. PyTorch's CUDA builds bring it, except on Windows."""
    return find_spec("triton") is not None


@torch.library.custom_op("metronome::paged_attention", mutates_args=())
def paged_attention(
    queries: Tensor, keys: Tensor, values: Tensor, rows: Tensor, blocks: Tensor, turn: Tensor | None,
    tokens: int, scale: float, window: int, sinks: int,
) -> Tensor:  # fmt: skip
    """See `paged_kernel.attend`."""
    from metronome_cli.engine.paged_kernel import attend  # Triton is needed from here on

    return attend(
        queries, keys, values, rows, blocks, turn, tokens=tokens, scale=scale, window=window, sinks=sinks
    )


@paged_attention.register_fake
def _(queries: Tensor, *_: object) -> Tensor:
    return queries.new_empty(queries.shape[0], queries.shape[1] * queries.shape[2])


class PagedAttention:
    """Attention of `heads` query heads over a pool; `scale` multiplies the scores."""

    def __init__(self, pool: BlockPool, heads: int, scale: float) -> None:
        if heads % pool.kv_heads:
            raise ValueError(f"{heads} query heads cannot share {pool.kv_heads} KV heads")
        self.pool = pool
        self.group = heads // pool.kv_heads
        self.scale = scale
        data = pool.data
        layers, _, kv_heads, blocks, block_tokens, dim = data.shape
        # one view a layer: token rows to write, block rows to gather
        self._rows = [data[layer].view(2, kv_heads, blocks * block_tokens, dim) for layer in range(layers)]
        self._blocks = [
            data[layer].view(2 * kv_heads * blocks, block_tokens * dim) for layer in range(layers)
        ]
        self.scratch = data.new_empty(0)

    def write(self, layer: int, keys: Tensor, values: Tensor, plan: StepPlan | TablePlan) -> None:
        """keys, values: [B T, kv_heads, dim], rotated already."""
        rows = self._rows[layer]
        rows[0].index_copy_(1, plan.write_rows, keys.transpose(0, 1))
        rows[1].index_copy_(1, plan.write_rows, values.transpose(0, 1))

    def attend(self, layer: int, queries: Tensor, plan: StepPlan | TablePlan) -> Tensor:
        """queries: [B T, heads, dim], rotated -> [B T, heads x dim]."""
        if isinstance(plan, TablePlan):
            keys, values = self.pool.data[layer]
            table, span = plan.table, plan.span
            mixed: Tensor = paged_attention(
                queries, keys, values, table.rows, table.blocks, plan.turn,
                plan.tokens, self.scale, min(span.window, FARTHEST), span.sinks,
            )  # fmt: skip
            return mixed
        if plan.spans is not None:
            return self._attend_in_place(layer, queries, plan.spans, plan)
        keys, values = self._gather(layer, plan)
        q = self._stack(queries, plan)
        scores = torch.baddbmm(plan.bias, q, keys.transpose(1, 2), alpha=self.scale)
        if plan.turn is not None:
            turned = self._stack(rotate(queries, *plan.turn), plan)
            sinks = slice(0, plan.sinks)
            scores[:, :, sinks] = torch.baddbmm(
                plan.bias[:, :, sinks], turned, keys[:, sinks].transpose(1, 2), alpha=self.scale
            )
        weights = torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
        return self._unstack(torch.bmm(weights, values), plan)

    def _attend_in_place(
        self, layer: int, queries: Tensor, spans: tuple[slice, ...], plan: StepPlan
    ) -> Tensor:
        """One session after another over its own rows of the pool, which are read once and copied never."""
        keys, values = self._rows[layer]
        stacked = self._stack(queries * self.scale, plan)
        q = stacked.view(self.pool.kv_heads, plan.batch, *stacked.shape[1:]).unbind(1)  # [V, G T, dim] each
        mixed = torch.empty(plan.batch, *q[0].shape, dtype=queries.dtype)  # [B, V, G T, dim]
        for row, span in enumerate(spans):
            own = keys[:, span]  # [V, K, dim]
            if q[row].shape[1] == 1:  # keys x query is the faster product
                scores = torch.bmm(own, q[row].transpose(1, 2)).transpose(1, 2)
            else:
                scores = torch.bmm(q[row], own.transpose(1, 2))
            scores += plan.bias[row, :, : own.shape[1]]
            weights = torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
            torch.bmm(weights, values[:, span], out=mixed[row])
        return self._unstack(mixed.transpose(0, 1), plan)

    def _gather(self, layer: int, plan: StepPlan) -> tuple[Tensor, Tensor]:
        """Keys and values of the resident blocks: [kv_heads x B, K, dim] each, in a buffer that is used
        again.
        """
        pool = self.pool
        width = pool.block_tokens * pool.head_dim
        size = plan.gather_rows.shape[0] * width
        if self.scratch.numel() < size:
            self.scratch = pool.data.new_empty(size + size // 2)  # caches grow: not once a block
        out = self.scratch[:size].view(-1, width)
        torch.index_select(self._blocks[layer], 0, plan.gather_rows, out=out)
        keys, values = out.view(2, pool.kv_heads * plan.batch, -1, pool.head_dim).unbind(0)
        return keys, values

    def _stack(self, queries: Tensor, plan: StepPlan) -> Tensor:
        """[B T, heads, dim] -> [kv_heads x B, group x T, dim]."""
        shape = (plan.batch, plan.tokens, self.pool.kv_heads, self.group, queries.shape[-1])
        q = queries.view(shape).permute(2, 0, 3, 1, 4)
        return q.reshape(shape[2] * shape[0], self.group * plan.tokens, shape[4])

    def _unstack(self, rows: Tensor, plan: StepPlan) -> Tensor:
        """[kv_heads x B, group x T, dim] -> [B T, heads x dim]."""
        shape = (self.pool.kv_heads, plan.batch, self.group, plan.tokens, rows.shape[-1])
        return rows.reshape(shape).permute(1, 3, 0, 2, 4).reshape(plan.batch * plan.tokens, -1)
