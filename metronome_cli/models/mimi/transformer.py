"""The codec's transformers, at the inner rate, each session with a ring of keys and values.

A query at position p attends [p - context + 1, p]. A frame brings `stride` positions at once, and all of them
are written before the first is asked for, so the ring holds context + stride - 1 positions: with `context`
alone the first query of each frame would lose its oldest key once the ring is full.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from metronome_cli.engine.projection import Projection
from metronome_cli.engine.transfer import to_device
from metronome_cli.models.mimi.shape import MimiShape
from metronome_cli.models.mimi.state import CodecRows
from metronome_cli.models.weights.source import WeightSource

_NORM_EPS = 1e-5
_LONG = 1 << 16  # numbers in one slot's ring of one layer from which a copy costs more than a call
_RANDOM_SCALE = 0.01  # of a branch, as training starts from


class CodecLayer:
    """Pre-norm attention and a GELU perceptron, each scaled before it joins the residual."""

    def __init__(self, weights: WeightSource, name: str, shape: MimiShape) -> None:
        dim, mlp = shape.hidden, shape.mlp
        self.qkv = Projection(weights.tensor(f"{name}.qkv", 3 * dim, dim))
        self.output = Projection(weights.tensor(f"{name}.output", dim, dim))
        self.up = Projection(weights.tensor(f"{name}.up", mlp, dim))
        self.down = Projection(weights.tensor(f"{name}.down", dim, mlp))
        self.attention_norm = _norm(weights, f"{name}.attention_norm", dim)
        self.mlp_norm = _norm(weights, f"{name}.mlp_norm", dim)
        self.attention_scale = weights.tensor(f"{name}.attention_scale", dim, value=_RANDOM_SCALE)
        self.mlp_scale = weights.tensor(f"{name}.mlp_scale", dim, value=_RANDOM_SCALE)

    def attention_input(self, x: Tensor) -> Tensor:
        """x: [rows, dim] -> queries, keys and values side by side, [rows, 3 dim]."""
        return self.qkv(F.layer_norm(x, x.shape[-1:], *self.attention_norm, eps=_NORM_EPS))

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        """x, attended: [rows, dim]; returns the layer's output [rows, dim]."""
        x = torch.addcmul(x, self.output(attended), self.attention_scale)
        normed = F.layer_norm(x, x.shape[-1:], *self.mlp_norm, eps=_NORM_EPS)
        return torch.addcmul(x, self.down(F.gelu(self.up(normed))), self.mlp_scale)


def _norm(weights: WeightSource, name: str, dim: int) -> tuple[Tensor, Tensor]:
    return weights.tensor(f"{name}.weight", dim, value=1.0), weights.tensor(f"{name}.bias", dim, value=0.0)


class CodecTransformer:
    """All layers. The ring buffers they write to are an argument (`new_rings`)."""

    def __init__(self, weights: WeightSource, name: str, shape: MimiShape) -> None:
        self.shape = shape
        self.ring = shape.context + shape.stride - 1
        self.layers = [CodecLayer(weights, f"{name}.layers.{n}", shape) for n in range(shape.layers)]
        pairs = torch.arange(0, shape.head_dim, 2, device=weights.device, dtype=torch.float64)
        self._frequencies = shape.rope_theta ** -(pairs / shape.head_dim)
        self._device, self._dtype = weights.device, weights.dtype

    def new_rings(self) -> list[CodecRows]:
        """For each layer, a table of keys and values: [slots, 2, heads, ring, head_dim]."""
        shape = (2, self.shape.heads, self.ring, self.shape.head_dim)
        return [CodecRows(shape, self._device, self._dtype) for _ in self.layers]

    def __call__(
        self, x: Tensor, slots: Sequence[int], lengths: Tensor, rings: Sequence[CodecRows]
    ) -> Tensor:
        """x: [batch, columns, hidden], the next `stride` positions of each slot -> the same shape.

        lengths: [batch], positions that each slot has seen before. The slots' rings are updated.
        """
        batch, columns = x.shape[:2]
        positions = lengths[:, None] + torch.arange(columns, device=x.device)  # [batch, columns]
        frame = _CodecFrame(slots, positions, self._rotation(positions, x.dtype), self._visible(positions))
        rows = x.reshape(batch * columns, -1)
        for layer, ring in zip(self.layers, rings, strict=True):
            joined = layer.attention_input(rows).view(batch, columns, 3, self.shape.heads, -1)
            query, key, value = joined.permute(2, 0, 3, 1, 4)  # [batch, heads, columns, head_dim] each
            frame.store(ring.data, frame.turn(key), value)
            attended = frame.attend(ring.data, frame.turn(query))
            rows = layer.after_attention(rows, attended.transpose(1, 2).reshape(rows.shape))
        return rows.view(batch, columns, -1)

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        angles = positions[:, None, :, None] * self._frequencies  # [batch, 1, columns, head_dim / 2], float64
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def _visible(self, positions: Tensor) -> Tensor:
        """[batch, 1, columns, ring]: the entries that each new position may attend, once all are written."""
        newest = positions[:, -1:, None]
        entries = torch.arange(self.ring, device=positions.device)
        held = newest - (newest - entries) % self.ring  # the position that each entry holds; < 0: nothing yet
        behind = positions[:, :, None] - held
        return ((held >= 0) & (behind >= 0) & (behind < self.shape.context))[:, None]


class _CodecFrame:
    """What all layers of one call share: where to write, how to rotate, what is visible."""

    def __init__(
        self, slots: Sequence[int], positions: Tensor, rotation: tuple[Tensor, Tensor], visible: Tensor
    ) -> None:
        self.positions = positions
        self.cos, self.sin = rotation
        self.visible = visible
        self.slots = slots
        self.index = to_device(slots, positions.device)
        neighbours = list(slots) == list(range(slots[0], slots[0] + len(slots)))
        self.run = slice(slots[0], slots[0] + len(slots)) if neighbours else None

    def turn(self, x: Tensor) -> Tensor:
        """Rotary embedding, half layout. x: [batch, heads, columns, head_dim]."""
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * self.cos - right * self.sin, right * self.cos + left * self.sin], dim=-1)

    def store(self, ring: Tensor, key: Tensor, value: Tensor) -> None:
        """Write the new columns, key and value: [batch, heads, columns, head_dim], into the slots' rings."""
        joined = torch.stack([key, value], dim=1).permute(0, 3, 1, 2, 4)  # columns before keys and values
        ring[self.index[:, None], :, :, self.positions % ring.shape[3]] = joined

    def attend(self, ring: Tensor, query: Tensor) -> Tensor:
        """query: [batch, heads, columns, head_dim] over the slots' rings -> the same shape.

        Rings of neighbouring slots are attended where they lie, in one call. Others are gathered; on a CPU
        long ones are attended one after another instead, which reads them once and copies nothing.
        """
        if self.run is None and ring.device.type == "cpu" and ring[0].numel() >= _LONG:
            return torch.cat([self._one(ring, query, row) for row in range(len(self.slots))])
        batch = ring[self.index] if self.run is None else ring[self.run]
        return F.scaled_dot_product_attention(query, batch[:, 0], batch[:, 1], self.visible)

    def _one(self, ring: Tensor, query: Tensor, row: int) -> Tensor:
        slot, at = self.slots[row], slice(row, row + 1)
        own = ring[slot : slot + 1]
        return F.scaled_dot_product_attention(query[at], own[:, 0], own[:, 1], self.visible[at])
