"""A decoder over a sequence that is rebuilt in each frame: a few positions, keys and values in a plain
tensor."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from metronome_cli.engine.decoder_weights import DecoderWeights, LayerWeights
from metronome_cli.engine.rotary import rotate


class ShortDecoder:
    """Up to `positions` positions of a batch that all move together. Not for sessions: nothing is kept."""

    def __init__(self, weights: DecoderWeights, positions: int) -> None:
        self._weights = weights
        self._cos, self._sin = weights.rotary.turns(np.arange(positions), weights.dtype, weights.device)
        self._positions = positions
        self._cache = torch.empty(0)
        self._at = 0

    def begin(self, batch: int) -> None:
        """Forget what was fed; the next inputs are position 0 of `batch` sequences."""
        w = self._weights
        shape = (len(w.layers), 2, batch, w.kv_heads, self._positions, w.head_dim)
        self._cache = torch.empty(shape, dtype=w.dtype, device=w.device)
        self._at = 0

    def feed(self, x: Tensor) -> Tensor:
        """x: [batch, hidden], the next position of each -> its final-normed state, [batch, hidden]."""
        w = self._weights
        for index, layer in enumerate(w.layers):
            x = layer.output.add(self._attend(index, layer, x), x)
            x = layer.mlp(F.rms_norm(x, (w.hidden,), layer.mlp_norm, w.eps), x)
        self._at += 1
        return F.rms_norm(x, (w.hidden,), w.final_norm, w.eps)

    def _attend(self, index: int, layer: LayerWeights, x: Tensor) -> Tensor:
        w, at = self._weights, self._at
        normed = F.rms_norm(x, (w.hidden,), layer.input_norm, w.eps)
        qkv = layer.qkv(normed).view(len(x), w.heads + 2 * w.kv_heads, w.head_dim)
        q, k, v = torch.split(qkv, [w.heads, w.kv_heads, w.kv_heads], dim=1)
        if layer.query_norm is not None:
            q = F.rms_norm(q, (w.head_dim,), layer.query_norm, w.eps)
            k = F.rms_norm(k, (w.head_dim,), layer.key_norm, w.eps)
        cos, sin = self._cos[at], self._sin[at]
        cache = self._cache[index]
        cache[0, :, :, at] = rotate(k, cos, sin)
        cache[1, :, :, at] = v
        keys, values = cache[:, :, :, : at + 1]
        mixed = F.scaled_dot_product_attention(
            rotate(q, cos, sin)[:, :, None], keys, values, enable_gqa=w.heads != w.kv_heads
        )
        return mixed.reshape(len(x), -1)
