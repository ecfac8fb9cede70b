"""A mixture-of-experts MLP for a batch of tokens: each token runs through the few experts its router picks.

Tokens are sorted by expert, so each expert that is hit reads its matrices once, whatever the batch: at
batch 1 a step reads `per_token` experts a layer, at large batches all of them. On a GPU one grouped
product serves all experts (engine/grouped_kernel.py); on a CPU each runs in turn. Nothing on a GPU asks for a
number back, so a step can be captured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from metronome_cli.engine.attention import kernels_available
from metronome_cli.engine.projection import Projection


@torch.library.custom_op("metronome::grouped_product", mutates_args=())
def grouped_product(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """rows: [n, in], sorted by expert; matrices: [experts, out, in]; ends: [experts] int32, where each one's rows
    end -> [n, out]. By Triton: PyTorch's grouped product is fast on compute capability 9 and 10 alone, and asks the
    device for numbers elsewhere.
    """
    from metronome_cli.engine.grouped_kernel import product  # Triton is needed from here on

    return product(rows, matrices, ends)


@grouped_product.register_fake
def _(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    return rows.new_empty(rows.shape[0], matrices.shape[1])


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """`count` experts of width `mlp`, `per_token` of them for each token; `shared`: the width of one that
    every token runs through, 0 where there is none. `normalise`: the chosen weights are made to sum to
    1."""

    count: int
    per_token: int
    mlp: int
    shared: int = 0
    normalise: bool = True


@dataclass(slots=True)
class SharedExpert:
    """An MLP for every token, weighted by a sigmoid gate."""

    gate: Projection
    up: Projection
    down: Projection
    weight: Tensor  # [1, hidden]

    def __call__(self, x: Tensor) -> Tensor:
        """x: [tokens, hidden]."""
        return torch.sigmoid(F.linear(x, self.weight)) * self.down(self.up.mul(x, self.gate.silu(x)))


@dataclass(slots=True)
class Experts:
    """router: [count, hidden]; gate_up: [count, 2 mlp, hidden], gate first; down: [count, hidden, mlp]."""

    shape: ExpertShape
    router: Tensor
    gate_up: Tensor
    down: Tensor
    shared: SharedExpert | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """x: [tokens, hidden] -> the same."""
        weights, chosen = self._route(x)
        if x.device.type == "cuda" and not kernels_available():
            mixed = self.dense(x, weights, chosen)
        else:
            mixed = self.sorted(x, weights, chosen, grouped=x.device.type == "cuda")
        return mixed if self.shared is None else mixed + self.shared(x)

    def sorted(self, x: Tensor, weights: Tensor, chosen: Tensor, *, grouped: bool) -> Tensor:
        """Each expert on its own tokens. weights, chosen: [tokens, per_token]."""
        order = chosen.flatten().argsort(stable=True)
        tokens = order // self.shape.per_token
        ones = torch.ones_like(order)  # counted without asking the device how many there are
        counts = ones.new_zeros(self.shape.count).index_add_(0, chosen.flatten(), ones)
        if not grouped:
            out = self._in_turn(x[tokens], counts)
            return torch.zeros_like(x).index_add_(0, tokens, out * weights.flatten()[order, None])
        out = torch.empty(len(order), x.shape[1], dtype=x.dtype, device=x.device)
        out[order] = self._grouped(x[tokens], counts)  # back to each token's own order: sums that repeat
        shares = weights.float()[..., None]
        return (out.view(*chosen.shape, -1).float() * shares).sum(1).to(x.dtype)

    def dense(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Every expert on every token, most of it weighted by 0: where no grouped product serves the
        dtype."""
        shares = x.new_zeros(len(x), self.shape.count).scatter_(1, chosen, weights)
        gate, up = (x @ self.gate_up.transpose(1, 2)).chunk(2, dim=-1)  # [count, tokens, mlp]
        return torch.einsum("end,ne->nd", (F.silu(gate) * up) @ self.down.transpose(1, 2), shares)

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and numbers of each token's experts, [tokens, per_token] each."""
        chances = F.linear(x, self.router).softmax(-1, dtype=torch.float32)
        weights, chosen = chances.topk(self.shape.per_token, dim=-1)
        if self.shape.normalise:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(x.dtype), chosen

    def _grouped(self, rows: Tensor, counts: Tensor) -> Tensor:
        """rows: [n, hidden], sorted by expert, counts[e] of them for expert e."""
        ends = counts.cumsum(0, dtype=torch.int32)
        gate, up = grouped_product(rows, self.gate_up, ends).chunk(2, dim=-1)
        mixed: Tensor = grouped_product(F.silu(gate) * up, self.down, ends)
        return mixed

    def _in_turn(self, rows: Tensor, counts: Tensor) -> Tensor:
        parts = torch.split(rows, counts.tolist())
        return torch.cat([self._one(expert, part) for expert, part in enumerate(parts) if len(part)])

    def _one(self, expert: int, rows: Tensor) -> Tensor:
        gate, up = F.linear(rows, self.gate_up[expert]).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.down[expert])
