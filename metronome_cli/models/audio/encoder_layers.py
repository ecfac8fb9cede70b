"""Encoder layer of Whisper, of Qwen-Omni's audio towers and of MiniCPM-o, with attention as an argument.

Parameter names equal those of the published checkpoints. The `attend` function decides where keys come from: a
tower attends inside its block, a streaming encoder also to its cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v: [batch, heads, time, dim] -> the same as q


def within(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of every position to every position of its own row."""
    return F.scaled_dot_product_attention(q, k, v)


class SelfAttention(nn.Module):
    """Multi-head attention with biases on all projections, the key's by choice."""

    def __init__(self, width: int, heads: int, key_bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width, bias=key_bias)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """x: [batch, time, width]."""
        mixed = attend(self._heads(self.q_proj(x)), self._heads(self.k_proj(x)), self._heads(self.v_proj(x)))
        out: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)


class EncoderLayer(nn.Module):
    """Pre-norm transformer encoder layer with a GELU MLP."""

    def __init__(self, width: int, heads: int, mlp: int, key_bias: bool = False) -> None:
        super().__init__()
        self.self_attn = SelfAttention(width, heads, key_bias)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, mlp)
        self.fc2 = nn.Linear(mlp, width)
        self.final_layer_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, attend: Attend = within) -> Tensor:
        """x: [batch, time, width]."""
        x = x + self.self_attn(self.self_attn_layer_norm(x), attend)
        out: Tensor = x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))
        return out


def sinusoids(length: int, width: int) -> Tensor:
    """Whisper's fixed positions, [length, width]: sines in the first half of the width, then cosines."""
    half = width // 2
    step = math.log(10_000) / (half - 1)
    angles = torch.arange(length, device="cpu")[:, None] * torch.exp(
        -step * torch.arange(half, device="cpu").float()
    )
    return torch.cat([angles.sin(), angles.cos()], dim=1)
