"""The fast way: one decoder block of our own for the Llama, Mistral, Qwen2, Qwen3 and Moshi family."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from metronome_cli.engine.attention import PagedAttention
from metronome_cli.engine.block_pool import BlockPool
from metronome_cli.engine.decoder_weights import DecoderWeights, LayerWeights
from metronome_cli.engine.rotary import rotate
from metronome_cli.engine.step_plan import StepPlan
from metronome_cli.engine.step_table import TablePlan


class NativeLayers:
    """Runs the blocks of `weights` over `pool`."""

    name = "fast"
    captures = True  # its launches depend on batch and tokens alone

    def __init__(self, weights: DecoderWeights, pool: BlockPool) -> None:
        self.weights = weights
        self.rotary = weights.rotary
        self.can_roll, self.bounded_positions = True, False
        self.hidden_size = weights.hidden
        self.native_window = weights.native_window
        self.attention = PagedAttention(pool, weights.heads, weights.head_dim**-0.5)
        self.group = self.attention.group
        self._norm_shape = (weights.hidden,)
        self._head_shape = (weights.head_dim,)
        self._split = (weights.heads, weights.kv_heads)

    def run(self, embeds: Tensor, plan: StepPlan | TablePlan) -> Tensor:
        """embeds: [B, T, hidden] -> final-normed hidden state of each row's last valid token, [B, hidden]."""
        x = embeds.reshape(plan.batch * plan.tokens, -1)
        final = len(self.weights.layers) - 1
        for index, layer in enumerate(self.weights.layers):
            mixed = self._attend(index, layer, x, plan)
            if index == final and plan.tokens > 1:  # nothing below reads the other tokens
                x, mixed = x[plan.last], mixed[plan.last]
            x = self._mlp(layer, layer.output.add(mixed, x))
        return F.rms_norm(x, self._norm_shape, self.weights.final_norm, self.weights.eps)

    def _attend(self, index: int, layer: LayerWeights, x: Tensor, plan: StepPlan | TablePlan) -> Tensor:
        heads, kv_heads = self._split
        normed = F.rms_norm(x, self._norm_shape, layer.input_norm, self.weights.eps)
        qkv = layer.qkv(normed).view(-1, heads + 2 * kv_heads, self.weights.head_dim)
        if layer.query_norm is not None:
            queries = F.rms_norm(qkv[:, :heads], self._head_shape, layer.query_norm, self.weights.eps)
            keys = F.rms_norm(
                qkv[:, heads : heads + kv_heads], self._head_shape, layer.key_norm, self.weights.eps
            )
            queries, keys = rotate(queries, plan.cos, plan.sin), rotate(keys, plan.cos, plan.sin)
        else:
            turned = rotate(qkv[:, : heads + kv_heads], plan.cos, plan.sin)
            queries, keys = turned[:, :heads], turned[:, heads:]
        self.attention.write(index, keys, qkv[:, heads + kv_heads :], plan)
        return self.attention.attend(index, queries, plan)

    def _mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        normed = F.rms_norm(x, self._norm_shape, layer.mlp_norm, self.weights.eps)
        return layer.mlp(normed, x)
