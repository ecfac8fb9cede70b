"""A float32 Llama that recomputes every position for every query: no cache, no blocks, one loop a query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Keys = Callable[[int], tuple[list[int], list[int]]]
"""Of the query at t: the keys it attends, and the position that each of them is turned to."""


def union(window: int, sinks: int) -> Keys:
    """[0, sinks) and [t - window, t], everything at its own position."""

    def keys(t: int) -> tuple[list[int], list[int]]:
        seen = [p for p in range(t + 1) if p < sinks or p >= t - window]
        return seen, seen

    return keys


def rolling(window: int, sinks: int, newest: Callable[[int], int]) -> Keys:
    """The same keys, with sinks moved up so that their distance to the chunk's newest token stays what it was
    when the window filled."""

    def keys(t: int) -> tuple[list[int], list[int]]:
        seen, _ = union(window, sinks)(t)
        shift = max(0, newest(t) - (window + sinks))
        return seen, [p + shift if p < sinks else p for p in seen]

    return keys


def _turn(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """x: [n, heads, dim] turned to positions [n]."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = (positions.double()[:, None] * frequencies).unsqueeze(1)
    cos, sin = angles.cos().float(), angles.sin().float()
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


@torch.no_grad()
def llama_hidden(model: Any, embeds: Tensor, keys: Keys) -> Tensor:
    """embeds: [tokens, hidden] -> [tokens, hidden], each query attending `keys` of it."""
    config, x = model.config, embeds
    theta = config.rope_parameters["rope_theta"]
    for layer in model.layers:
        normed, attention = layer.input_layernorm(x), layer.self_attn
        q = attention.q_proj(normed).view(len(x), -1, config.head_dim)
        k = attention.k_proj(normed).view(len(x), -1, config.head_dim)
        v = attention.v_proj(normed).view(len(x), -1, config.head_dim)
        mixed = torch.stack([_attend(q, k, v, t, keys(t), theta) for t in range(len(x))])
        x = x + attention.o_proj(mixed)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    normed_state: Tensor = model.norm(x)
    return normed_state


def _attend(
    q: Tensor, k: Tensor, v: Tensor, t: int, keys: tuple[list[int], list[int]], theta: float
) -> Tensor:
    seen, positions = keys
    group = q.shape[1] // k.shape[1]
    query = _turn(q[t : t + 1], torch.tensor([t]), theta)[0]  # [heads, dim]
    turned = _turn(k[seen], torch.tensor(positions), theta).repeat_interleave(group, 1)
    scores = torch.einsum("hd,khd->hk", query, turned) * q.shape[-1] ** -0.5
    return torch.einsum("hk,khd->hd", scores.softmax(-1), v[seen].repeat_interleave(group, 1)).reshape(-1)
