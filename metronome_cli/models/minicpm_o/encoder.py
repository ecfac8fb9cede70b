"""MiniCPM-o's audio encoder: Whisper's layers over a unit at a time, with a key-value cache of each session.

A unit is one second of mel. Two convolutions make 50 positions of it (of version 4.5's 102 or 104 frames, the
positions that spare frames spoilt are cut off); they attend to themselves and to all positions in the cache,
without a mask, and are added to it. The cache is dropped when Whisper's 1,500 positions would be reached:
after 29 units. So over 29 units the encoder computes what one pass over the whole stretch computes under a
mask in which each position sees its own second and all before it. Version 4.5's spare frames make that exact;
in version 2.6 the convolutions see zeros at each second's edges, in the authors' code too.

The cache lies outside the paged pool: 2 x layers x width x bytes a position, 50 positions a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metronome_cli.models.audio.encoder_layers import EncoderLayer

MAX_POSITIONS = 1500
UNIT_POSITIONS = 50
_GROW = 290  # positions by which a cache is enlarged: five times fill the 29 units


@dataclass(frozen=True, slots=True)
class UnitEncoderShape:
    """Sizes of the encoder and what follows it. `pool`: positions averaged into one embedding, `out` wide."""

    mels: int = 80
    layers: int = 24
    width: int = 1024
    heads: int = 16
    mlp: int = 4096
    pool: int = 5
    out: int = 4096


class EncoderCache:
    """Keys and values of one session, [layers, 2, heads, positions, dim]; its memory grows and is given
    back."""

    def __init__(self, shape: UnitEncoderShape, device: torch.device, dtype: torch.dtype) -> None:
        self._shape = (shape.layers, 2, shape.heads, 0, shape.width // shape.heads)
        self._kv = torch.empty(self._shape, device=device, dtype=dtype)
        self.length = 0

    @property
    def nbytes(self) -> int:
        return self._kv.numel() * self._kv.element_size()

    def reset(self) -> None:
        """Drop everything, memory included."""
        self._kv = self._kv.new_empty(self._shape)
        self.length = 0

    def fill(self, positions: int) -> None:
        """Hold that many positions of random keys and values, as a session of some age does."""
        self.reset()
        self.make_room(positions)
        self._kv[:, :, :, :positions].normal_(0.0, 0.5)
        self.length = positions

    def make_room(self, positions: int) -> None:
        """Room for that many more positions."""
        missing = self.length + positions - self._kv.shape[3]
        if missing > 0:
            more = -(-missing // _GROW) * _GROW
            self._kv = F.pad(self._kv, (0, 0, 0, more))

    def put(self, layer: int, keys: Tensor, values: Tensor) -> Tensor:
        """Write a layer's new positions, [heads, new, dim]; all of that layer, [2, heads, length + new,
        dim]."""
        end = self.length + keys.shape[1]
        self._kv[layer, 0, :, self.length : end] = keys
        self._kv[layer, 1, :, self.length : end] = values
        return self._kv[layer, :, :, :end]


class UnitEncoder(nn.Module):
    """The encoder. Tensor names are the checkpoint's, below `apm.`."""

    def __init__(self, shape: UnitEncoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.conv1 = nn.Conv1d(shape.mels, shape.width, 3, padding=1)
        self.conv2 = nn.Conv1d(shape.width, shape.width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(MAX_POSITIONS, shape.width)
        self.layers = nn.ModuleList(
            EncoderLayer(shape.width, shape.heads, shape.mlp) for _ in range(shape.layers)
        )
        self.layer_norm = nn.LayerNorm(shape.width)

    def forward(self, mels: Sequence[Tensor], caches: Sequence[EncoderCache]) -> Tensor:
        """A unit of each session, mels[i]: [bins, 100, 102 or 104] -> [batch, 50, width], after the norm."""
        x = self._convolve(mels)
        for cache, mel in zip(caches, mels, strict=True):
            if cache.length + (mel.shape[1] + 1) // 2 >= MAX_POSITIONS:
                cache.reset()
            cache.make_room(x.shape[1])
        at = torch.tensor([cache.length for cache in caches], device=x.device)
        x = x + self.embed_positions(at[:, None] + torch.arange(x.shape[1], device=x.device))
        for index, layer in enumerate(self.layers):
            x = layer(x, _CachedAttention(index, caches))
        for cache in caches:
            cache.length += x.shape[1]
        out: Tensor = self.layer_norm(x)
        return out

    def _convolve(self, mels: Sequence[Tensor]) -> Tensor:
        """[batch, 50, width], the positions at spoilt edges cut off."""
        groups: dict[int, list[int]] = defaultdict(list)
        for row, mel in enumerate(mels):
            groups[mel.shape[1]].append(row)
        out: dict[int, Tensor] = {}
        for frames, rows in groups.items():
            batch = torch.stack([mels[row] for row in rows]).to(self.conv1.weight.dtype)
            x = F.gelu(self.conv2(F.gelu(self.conv1(batch)))).transpose(1, 2)
            front = 1 if frames > 2 * UNIT_POSITIONS + 2 else 0
            out |= zip(rows, x[:, front : front + UNIT_POSITIONS], strict=True)
        return torch.stack([out[row] for row in range(len(mels))])


class _CachedAttention:
    """Attention of each row to its session's cache and its own unit; rows of one age run together."""

    def __init__(self, layer: int, caches: Sequence[EncoderCache]) -> None:
        self.layer = layer
        self.caches = caches
        self.ages: dict[int, list[int]] = defaultdict(list)
        for row, cache in enumerate(caches):
            self.ages[cache.length].append(row)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v: [batch, heads, 50, dim]."""
        seen = [cache.put(self.layer, k[row], v[row]) for row, cache in enumerate(self.caches)]
        out = torch.empty_like(q)
        for rows in self.ages.values():
            kv = torch.stack([seen[row] for row in rows])  # [rows, 2, heads, positions, dim]
            out[rows] = F.scaled_dot_product_attention(q[rows], kv[:, 0], kv[:, 1])
        return out


class AudioProjection(nn.Module):
    """Width to the language model's. Tensor names are the checkpoint's, below `audio_projection_layer.`."""

    def __init__(self, shape: UnitEncoderShape) -> None:
        super().__init__()
        self.pool = shape.pool
        self.linear1 = nn.Linear(shape.width, shape.out)
        self.linear2 = nn.Linear(shape.out, shape.out)

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, 50, width] -> [batch, 50 / pool, out]; a rest that fills no pool is dropped."""
        x = self.linear2(F.relu(self.linear1(x)))
        whole = x.shape[1] // self.pool
        out: Tensor = x[:, : whole * self.pool].reshape(len(x), whole, self.pool, -1).mean(dim=2)
        return out
