"""Weights of a decoder for the fast way: taken from a `transformers` module, or random of a given shape.

One block form covers Llama, Mistral, Qwen2 (biases on q, k, v), Qwen3 (norms on q and k heads) and Moshi's
temporal decoder (gate and up in one matrix).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metronome_cli.engine.projection import Projection
from metronome_cli.engine.rotary import Rotary

if TYPE_CHECKING:
    from metronome_cli.config.model_shape import ModelShape


@dataclass(slots=True)
class LayerWeights:
    """One decoder block. qkv rows: queries, keys, values. Its MLP is gate, up and down, or `mixture`: a
    function of normed tokens, [n, hidden] to the same, such as a mixture of experts."""

    input_norm: Tensor  # [hidden]
    qkv: Projection  # hidden -> (heads + 2 kv_heads) x head_dim
    query_norm: Tensor | None  # [head_dim]
    key_norm: Tensor | None  # [head_dim]
    output: Projection  # heads x head_dim -> hidden
    mlp_norm: Tensor  # [hidden]
    gate: Projection | None = None  # hidden -> mlp
    up: Projection | None = None  # hidden -> mlp
    down: Projection | None = None  # mlp -> hidden
    mixture: Callable[[Tensor], Tensor] | None = None

    def mlp(self, x: Tensor, residual: Tensor) -> Tensor:
        """residual + MLP(x): [n, hidden] each."""
        if self.mixture is not None:
            return residual + self.mixture(x)
        assert self.gate is not None
        assert self.up is not None
        assert self.down is not None
        return self.down.add(self.up.mul(x, self.gate.silu(x)), residual)


@dataclass(slots=True)
class DecoderWeights:
    """A whole decoder. `native_window`: keys that the model itself attends at most, where it has such a
    limit.

    `embedding`: [vocab, hidden] and `head`: hidden -> vocab, where the decoder has them.
    """

    layers: list[LayerWeights]
    final_norm: Tensor  # [hidden]
    rotary: Rotary
    eps: float
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    dtype: torch.dtype
    device: torch.device
    native_window: int | None = None
    embedding: Tensor | None = None
    head: Projection | None = None
    source: str = "random"
    parameters: int = field(default=0)  # elements read at a step, the embedding table left out

    @classmethod
    def random(
        cls,
        shape: ModelShape,
        seed: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        qkv_bias: bool = False,
        head_norms: bool = False,
    ) -> DecoderWeights:
        """Seeded weights of a profile's shape, made without a `transformers` module.

        Matrices have variance 1 / fan-in, and the two that write to the residual stream 1 / (2 layers) of
        that, so its size stays near that of unit inputs however many layers there are. Logits have unit
        variance.
        """
        draw = _Draw(seed, dtype, torch.device(device))
        layers = [_random_layer(shape, draw, qkv_bias, head_norms) for _ in range(shape.layers)]
        embedding = draw.normal(shape.need("vocab_size"), shape.hidden_size, std=1.0)
        return cls(
            layers=layers,
            final_norm=torch.ones(shape.hidden_size, dtype=dtype, device=device),
            rotary=Rotary.plain(shape.head_dim, shape.rotary_base),
            eps=1e-6,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            hidden=shape.hidden_size,
            dtype=dtype,
            device=torch.device(device),
            embedding=embedding,
            head=Projection(embedding * shape.hidden_size**-0.5),
            parameters=draw.drawn,
        )


class _Draw:
    """Seeded normal matrices, counted."""

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._dtype = dtype
        self.device = device
        self.drawn = 0

    def normal(self, *shape: int, std: float) -> Tensor:
        self.drawn += math.prod(shape)
        return torch.randn(shape, generator=self._generator).mul_(std).to(self.device, self._dtype)

    def projection(self, outputs: int, inputs: int, *, gain: float = 1.0, bias: bool = False) -> Projection:
        weight = self.normal(outputs, inputs, std=gain * inputs**-0.5)
        return Projection(weight, self.normal(outputs, std=0.1) if bias else None)

    def ones(self, size: int) -> Tensor:
        return torch.ones(size, dtype=self._dtype, device=self.device)


def _random_layer(shape: ModelShape, draw: _Draw, qkv_bias: bool, head_norms: bool) -> LayerWeights:
    into_residual = (2 * shape.layers) ** -0.5
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return LayerWeights(
        input_norm=draw.ones(shape.hidden_size),
        qkv=draw.projection(queries + 2 * keys, shape.hidden_size, bias=qkv_bias),
        query_norm=draw.ones(shape.head_dim) if head_norms else None,
        key_norm=draw.ones(shape.head_dim) if head_norms else None,
        output=draw.projection(shape.hidden_size, queries, gain=into_residual),
        mlp_norm=draw.ones(shape.hidden_size),
        gate=draw.projection(shape.need("intermediate_size"), shape.hidden_size),
        up=draw.projection(shape.need("intermediate_size"), shape.hidden_size),
        down=draw.projection(shape.hidden_size, shape.need("intermediate_size"), gain=into_residual),
    )
