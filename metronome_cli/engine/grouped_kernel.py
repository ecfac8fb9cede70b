"""The product of a mixture of experts on a GPU: each expert that has rows reads its matrix once per 16 of them.

One program makes a tile of columns for one expert and goes through that expert's rows; a program without rows ends
at once. The launch does not depend on which experts are hit, so it can be captured in a graph.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from metronome_cli.engine.kernel_tiling import power_of_2

ROWS, LEAST_ROWS, COLUMNS, DEPTH = 64, 16, 64, 64


@triton.jit
def _grouped(
    rows, matrices, ends, out, outputs, inputs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    expert, tile = tl.program_id(0), tl.program_id(1)
    stop = tl.load(ends + expert)
    start = tl.load(ends + expert - 1, mask=expert > 0, other=0)
    column = tile * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    matrix = matrices + expert.to(tl.int64) * outputs * inputs
    for first in range(start, stop, ROWS):
        row = first + tl.arange(0, ROWS)
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for k in range(0, inputs, DEPTH):
            inside = k + depth < inputs
            x = tl.load(
                rows + row.to(tl.int64)[:, None] * inputs + (k + depth)[None, :],
                mask=(row < stop)[:, None] & inside[None, :], other=0.0,
            )  # fmt: skip
            w = tl.load(
                matrix + column.to(tl.int64)[:, None] * inputs + (k + depth)[None, :],
                mask=(column < outputs)[:, None] & inside[None, :], other=0.0,
            )  # fmt: skip
            total += tl.dot(x, tl.trans(w), input_precision="ieee")
        there = (row < stop)[:, None] & (column < outputs)[None, :]
        to = out + row.to(tl.int64)[:, None] * outputs + column[None, :]
        tl.store(to, total.to(out.dtype.element_ty), mask=there)


def product(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """rows: [n, in], sorted by expert; matrices: [experts, out, in]; ends: [experts] int32 -> [n, out]."""
    (experts, outputs, inputs), n = matrices.shape, len(rows)
    out = torch.empty(n, outputs, dtype=rows.dtype, device=rows.device)
    each = min(
        ROWS, max(LEAST_ROWS, power_of_2(-(-4 * n // experts)))
    )  # of one expert, if four times the mean
    _grouped[(experts, -(-outputs // COLUMNS))](
        rows.contiguous(), matrices, ends, out, outputs, inputs, ROWS=each, COLUMNS=COLUMNS, DEPTH=DEPTH,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return out
