"""Paged attention on a GPU: each resident key and value is read once, where it lies in the pool.

One program attends a tile of query rows (tokens x the heads that share a KV head) over a part of one session's
keys. Parts of one session are merged by their log-sum-exp (FlashDecoding, Dao et al. 2023). Masks follow from
positions, so nothing of size keys x queries is ever stored. Scores, weights and sums are float32.

Rolling sinks: a query that is turned back by the sinks' shift scores them in the same pass
(engine/attention.py says why). Rings: a row past the newest position holds the key of one cycle before.

The table of a forward is `rows`, [batch, ROW_FIELDS] int32, and `blocks`, [entries, 2] int32: the id of a block
and the position of its first token, session after session (engine/step_table.py). The launch depends on batch
and tokens alone, so that one captured graph serves sessions of every age.

Triton comes with PyTorch's CUDA builds. This module is imported only where a pool lies on a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from metronome_cli.engine.kernel_tiling import Tiling, power_of_2, tiling

PROGRAMS = (
    512  # launched at least, where the cache is long enough to split: several for each of 100 to 200 cores
)
MOST_PARTS = 32  # of one session's keys
NEVER = tl.constexpr(
    -1.0e30
)  # score of a key that is not seen; finite, so that a row without keys gives zeros


@triton.jit
def _attend_part(
    q, k, v, rows, blocks, turn, out, sums, norms,
    scale, window, sinks, tokens, heads, head_stride, parts,
    FIELDS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, TURNED: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    pair, tile, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_heads = heads // GROUP
    row, head = pair // kv_heads, pair % kv_heads
    at = rows + row * FIELDS
    entry, count, length = tl.load(at), tl.load(at + 1), tl.load(at + 2)
    newest, cycle, first = tl.load(at + 3), tl.load(at + 4), tl.load(at + 5)

    query = tile * ROWS + tl.arange(0, ROWS)  # a token's heads side by side
    live = query < GROUP * tokens
    token = query // GROUP
    position = length + token
    d = tl.arange(0, WIDTH)
    inside = d < DIM
    line = ((row * tokens + token) * heads + head * GROUP + query % GROUP).to(tl.int64) * DIM
    there_q = live[:, None] & inside[None, :]
    x = tl.load(q + line[:, None] + d[None, :], mask=there_q, other=0.0)
    turned = x
    if TURNED:
        rolled = tl.load(q + line[:, None] + ((d + DIM // 2) % DIM)[None, :], mask=there_q, other=0.0)
        cos = tl.load(turn + row * 2 * DIM + d, mask=inside, other=0.0)
        sin = tl.load(turn + row * 2 * DIM + DIM + d, mask=inside, other=0.0)
        turned = (x.to(tl.float32) * cos[None, :] + rolled.to(tl.float32) * sin[None, :]).to(x.dtype)

    keys = count * BLOCK
    tiles = tl.cdiv(keys, KEYS)
    each = tl.cdiv(tiles, parts)
    peak = tl.full((ROWS,), NEVER, tl.float32)
    norm = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    for j in range(part * each, tl.minimum(part * each + each, tiles)):
        n = j * KEYS + tl.arange(0, KEYS)
        there = n < keys
        pointer = blocks + (entry + n // BLOCK) * 2
        block = tl.load(pointer, mask=there, other=0)
        p = tl.load(pointer + 1, mask=there, other=0) + n % BLOCK
        p = tl.where((cycle > 0) & (p > newest), p - cycle, p)
        at_kv = head.to(tl.int64) * head_stride + (block.to(tl.int64) * BLOCK + n % BLOCK) * DIM
        there_kv = there[:, None] & inside[None, :]
        key = tl.trans(tl.load(k + at_kv[:, None] + d[None, :], mask=there_kv, other=0.0))
        score = tl.dot(x, key, input_precision="ieee")
        if TURNED:  # noqa: SIM102 - decided when the kernel is compiled, unlike what follows
            if j * KEYS < sinks:  # sinks come first in the table
                score = tl.where((p < sinks)[None, :], tl.dot(turned, key, input_precision="ieee"), score)
        recent = (p[None, :] >= position[:, None] - window) | (p < sinks)[None, :]
        seen = (p[None, :] <= position[:, None]) & recent & (there & ((cycle == 0) | (p >= first)))[None, :]
        score = tl.where(seen, score * scale, NEVER)
        top = tl.maximum(peak, tl.max(score, 1))
        weight = tl.where(seen, tl.exp(score - top[:, None]), 0.0)
        fade = tl.exp(peak - top)
        value = tl.load(v + at_kv[:, None] + d[None, :], mask=there_kv, other=0.0)
        mixed = mixed * fade[:, None] + tl.dot(weight.to(value.dtype), value, input_precision="ieee")
        norm = norm * fade + tl.sum(weight, 1)
        peak = top

    if WHOLE:
        done = mixed / tl.maximum(norm, 1e-30)[:, None]
        tl.store(out + line[:, None] + d[None, :], done.to(x.dtype), mask=there_q)
    else:
        slot = ((pair * parts + part) * tl.num_programs(1) + tile).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        tl.store(sums + slot[:, None] * DIM + d[None, :], mixed, mask=there_q)
        tl.store(norms + slot * 2, peak, mask=live)
        tl.store(norms + slot * 2 + 1, norm, mask=live)


@triton.jit
def _merge_parts(
    sums, norms, out, tokens, heads, padded, parts,
    GROUP: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    pair, query = tl.program_id(0), tl.program_id(1)
    kv_heads = heads // GROUP
    row, head = pair // kv_heads, pair % kv_heads
    part = tl.arange(0, PARTS)
    d = tl.arange(0, WIDTH)
    used = part < parts
    slot = ((pair * parts + part) * padded + query).to(tl.int64)
    peak = tl.load(norms + slot * 2, mask=used, other=NEVER)
    norm = tl.load(norms + slot * 2 + 1, mask=used, other=0.0)
    weight = tl.exp(peak - tl.max(peak, 0))
    mask = used[:, None] & (d < DIM)[None, :]
    mixed = tl.load(sums + slot[:, None] * DIM + d[None, :], mask=mask, other=0.0)
    total = tl.sum(mixed * weight[:, None], 0) / tl.maximum(tl.sum(norm * weight, 0), 1e-30)
    line = ((row * tokens + query // GROUP) * heads + head * GROUP + query % GROUP).to(tl.int64) * DIM
    tl.store(out + line + d, total.to(out.dtype.element_ty), mask=d < DIM)


def constants(group: int, dim: int, block: int, cut: Tiling, *, fields: int, turned: bool) -> dict[str, Any]:
    """Compile-time arguments of the attending kernel."""
    return {
        "FIELDS": fields,
        "GROUP": group,
        "DIM": dim,
        "WIDTH": max(16, power_of_2(dim)),
        "BLOCK": block,
        "ROWS": cut.rows,
        "KEYS": cut.keys,
        "TURNED": turned,
        "WHOLE": cut.parts == 1,
    }


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: Tensor,
    blocks: Tensor,
    turn: Tensor | None,
    *,
    tokens: int,
    scale: float,
    window: int,
    sinks: int,
    cut: Tiling | None = None,
) -> Tensor:
    """queries: [batch x tokens, heads, dim], rotated -> [batch x tokens, heads x dim].

    keys, values: [kv_heads, blocks, block_tokens, dim] of one layer. rows, blocks: the forward's table. turn:
    [batch, 2, dim] float32, cosine and signed sine that turn a query back by the sinks' shift; None: sinks
    stand at their own positions. `window` below 2^30. `cut` forces a tiling.
    """
    (kv_heads, _, block, dim), heads = keys.shape, queries.shape[1]
    batch, group = len(queries) // tokens, heads // kv_heads
    cut = cut or tiling(batch, kv_heads, group, tokens, keys.element_size())
    queries = queries.contiguous()
    out = torch.empty_like(queries)
    sums = norms = out
    if cut.parts > 1:
        padded = (batch * kv_heads, cut.parts, cut.tiles * cut.rows)
        sums = torch.empty((*padded, dim), dtype=torch.float32, device=queries.device)
        norms = torch.empty((*padded, 2), dtype=torch.float32, device=queries.device)
    settings = constants(group, dim, block, cut, fields=rows.shape[1], turned=turn is not None)
    _attend_part[(batch * kv_heads, cut.tiles, cut.parts)](
        queries, keys, values, rows, blocks, rows if turn is None else turn, out, sums, norms,
        scale, window, sinks, tokens, heads, keys.stride(0), cut.parts,
        **settings, num_warps=cut.warps, num_stages=2,
    )  # fmt: skip
    if cut.parts > 1:
        _merge_parts[(batch * kv_heads, group * tokens)](
            sums, norms, out, tokens, heads, cut.tiles * cut.rows, cut.parts,
            GROUP=group, DIM=dim, WIDTH=settings["WIDTH"], PARTS=power_of_2(cut.parts),
        )  # fmt: skip
    return out.view(len(queries), -1)
