"""The depth transformer: inside one frame, the model's codes one after another.

Step k sees the temporal decoder's hidden state and the token before (the text, then code k - 1), and attends
to the steps before it in this frame; its keys and values live as long as the frame. Every step has its own
matrices, the norms are shared, and there is no positional embedding. The hidden state's part of all inputs
is one product, and each step multiplies by its own packed matrices where they lie.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from metronome_cli.engine.projection import Projection
from metronome_cli.models.moshi.shape import MoshiShape
from metronome_cli.models.weights.source import WeightSource

EPS = 1e-8
Pick = Callable[[int, Tensor], Tensor]  # step, logits [batch, codes] -> codes [batch]


class DepthLayer:
    """One layer's matrices, a set for each step."""

    def __init__(self, weights: WeightSource, name: str, shape: MoshiShape) -> None:
        options = shape.options
        steps, dim, mlp = options.spoken, options.depth_hidden, options.depth_mlp
        self.attention_norm = weights.tensor(f"{name}.attention_norm", dim, value=1.0)
        self.mlp_norm = weights.tensor(f"{name}.mlp_norm", dim, value=1.0)
        residual = (2 * options.depth_layers) ** -0.5
        self.qkv = _projections(weights.tensor(f"{name}.qkv", steps, 3 * dim, dim))
        self.output = _projections(weights.tensor(f"{name}.output", steps, dim, dim, gain=residual))
        gate_up = weights.tensor(f"{name}.gate_up", steps, 2 * mlp, dim)
        self.gate = _projections(gate_up[:, :mlp])
        self.up = _projections(gate_up[:, mlp:])
        self.down = _projections(weights.tensor(f"{name}.down", steps, dim, mlp, gain=residual))

    def mix(self, step: int, x: Tensor, attended: Tensor) -> Tensor:
        """x, attended: [batch, dim] -> the layer's output, [batch, dim]."""
        x = self.output[step].add(attended, x)
        normed = F.rms_norm(x, x.shape[-1:], self.mlp_norm, EPS)
        return self.down[step].add(self.up[step].mul(normed, self.gate[step].silu(normed)), x)


class DepthTransformer:
    """Runs all steps of a frame for a batch of sessions; holds nothing between frames."""

    def __init__(self, weights: WeightSource, shape: MoshiShape) -> None:
        options = shape.options
        self.steps, self.dim = options.spoken, options.depth_hidden
        self.heads = options.depth_heads
        self.layers = [DepthLayer(weights, f"depth.layers.{n}", shape) for n in range(options.depth_layers)]
        hidden = shape.decoder.hidden_size
        # half the variance from the hidden state, half from the token
        inputs = weights.tensor("depth.inputs", self.steps, self.dim, hidden, gain=0.5**0.5)
        self._inputs = Projection(inputs.flatten(0, 1))
        self._text = weights.tensor("depth.text", shape.decoder.need("vocab_size") + 1, self.dim, fan_in=2)
        self._codes = [
            weights.tensor(f"depth.codes.{step}", options.audio_vocab + 1, self.dim, fan_in=2)
            for step in range(self.steps - 1)
        ]
        self._heads = _projections(weights.tensor("depth.heads", self.steps, options.audio_vocab, self.dim))

    def run(self, hidden: Tensor, text: Tensor, pick: Pick) -> Tensor:
        """hidden: [batch, decoder hidden], normed; text: [batch] tokens -> codes [batch, steps]."""
        batch = hidden.shape[0]
        inputs = self._inputs(hidden).view(batch, self.steps, self.dim).unbind(1)
        caches = self._caches(hidden)
        codes: list[Tensor] = []
        token, table = text, self._text
        for step in range(self.steps):
            x = inputs[step] + F.embedding(token, table)
            token = pick(step, self._step(step, x, caches))
            codes.append(token)
            if step + 1 < self.steps:
                table = self._codes[step]
        return torch.stack(codes, dim=1)

    def _caches(self, like: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer, [batch, heads, steps, head_dim]."""
        shape = (len(self.layers), 2, like.shape[0], self.heads, self.steps, self.dim // self.heads)
        return [(layer[0], layer[1]) for layer in like.new_empty(shape)]

    def _step(self, step: int, x: Tensor, caches: list[tuple[Tensor, Tensor]]) -> Tensor:
        """x: [batch, dim] -> logits [batch, codes]."""
        for layer, cache in zip(self.layers, caches, strict=True):
            normed = F.rms_norm(x, x.shape[-1:], layer.attention_norm, EPS)
            x = layer.mix(step, x, self._attend(step, layer.qkv[step](normed), cache))
        return self._heads[step](x)

    def _attend(self, step: int, qkv: Tensor, cache: tuple[Tensor, Tensor]) -> Tensor:
        """qkv: [batch, 3 dim], stored as this step's -> [batch, dim]."""
        query, key, value = qkv.view(-1, 3, self.heads, self.dim // self.heads).unbind(1)
        keys, values = cache
        keys[:, :, step] = key
        values[:, :, step] = value
        if step == 0:  # a softmax over one key
            return value.reshape(-1, self.dim)
        seen = slice(0, step + 1)
        mixed = F.scaled_dot_product_attention(query[:, :, None], keys[:, :, seen], values[:, :, seen])
        return mixed.reshape(-1, self.dim)


def _projections(weight: Tensor) -> list[Projection]:
    """weight: [steps, out, in]."""
    return [Projection(matrix) for matrix in weight]
