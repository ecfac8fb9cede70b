"""The temporal decoder: what goes into a position, its layers' weights for the engine, the text head."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from metronome_cli.engine.decoder_weights import DecoderWeights, LayerWeights
from metronome_cli.engine.projection import Projection
from metronome_cli.engine.rotary import Rotary
from metronome_cli.models.moshi.shape import MoshiShape
from metronome_cli.models.weights.source import WeightSource

EPS = 1e-8


class StreamEmbedding:
    """One table for all streams, so that a position's sum is one lookup."""

    def __init__(self, weights: WeightSource, shape: MoshiShape) -> None:
        hidden = shape.decoder.hidden_size
        rows = [initial + 1 for initial in shape.initial]  # every token, and the initial one
        self.table = torch.empty(sum(rows), hidden, device=weights.device, dtype=weights.dtype)
        names = ["text_embedding", *(f"audio_embedding.{n}" for n in range(shape.streams - 1))]
        for name, part in zip(names, torch.split(self.table, rows), strict=True):
            part.copy_(weights.tensor(name, *part.shape, fan_in=shape.streams))
        starts = torch.tensor([0, *rows[:-1]]).cumsum(0)
        self._starts = starts.to(weights.device)

    def __call__(self, row: Tensor) -> Tensor:
        """row: [batch, streams] tokens -> [batch, hidden]."""
        return F.embedding_bag(row + self._starts, self.table, mode="sum")


def text_head(weights: WeightSource, shape: MoshiShape) -> Projection:
    """hidden -> text logits."""
    return Projection(
        weights.tensor("text_head", shape.decoder.need("vocab_size"), shape.decoder.hidden_size)
    )


def decoder_weights(weights: WeightSource, shape: MoshiShape, source: str) -> DecoderWeights:
    """The layers, for the engine to run over its pool."""
    sizes = shape.decoder
    before = weights.taken
    layers = [_layer(weights, f"layers.{n}", shape) for n in range(sizes.layers)]
    return DecoderWeights(
        layers=layers,
        final_norm=weights.tensor("final_norm", sizes.hidden_size, value=1.0),
        rotary=Rotary.plain(sizes.head_dim, sizes.rotary_base),
        eps=EPS,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        hidden=sizes.hidden_size,
        dtype=weights.dtype,
        device=weights.device,
        source=source,
        parameters=weights.taken - before,
    )


def _layer(weights: WeightSource, name: str, shape: MoshiShape) -> LayerWeights:
    sizes = shape.decoder
    hidden, width = sizes.hidden_size, sizes.heads * sizes.head_dim
    residual = (2 * sizes.layers) ** -0.5
    gate, up = weights.tensor(f"{name}.gate_up", 2 * sizes.need("intermediate_size"), hidden).chunk(2)
    return LayerWeights(
        input_norm=weights.tensor(f"{name}.attention_norm", hidden, value=1.0),
        qkv=Projection(weights.tensor(f"{name}.qkv", 3 * width, hidden)),
        query_norm=None,
        key_norm=None,
        output=Projection(weights.tensor(f"{name}.output", hidden, width, gain=residual)),
        mlp_norm=weights.tensor(f"{name}.mlp_norm", hidden, value=1.0),
        gate=Projection(gate),
        up=Projection(up),
        down=Projection(
            weights.tensor(f"{name}.down", hidden, sizes.need("intermediate_size"), gain=residual)
        ),
    )
