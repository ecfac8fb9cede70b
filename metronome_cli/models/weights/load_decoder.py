"""A decoder's weights from a source: random ones, or a checkpoint's, by the names `transformers` gives them.

Layer by layer, each matrix packed as it is read, so a checkpoint is never in memory twice. Covers the form of
Llama, Mistral, Qwen2 and Qwen3, and its mixture-of-experts variant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metronome_cli.config.model_shape import ModelShape
from metronome_cli.engine.decoder_weights import DecoderWeights, LayerWeights
from metronome_cli.engine.projection import Projection
from metronome_cli.engine.rotary import Rotary
from metronome_cli.models.decoding import Vocabulary
from metronome_cli.models.weights.checkpoint import Checkpoint, CheckpointLayout, TensorRecipe
from metronome_cli.models.weights.experts import Experts, ExpertShape, SharedExpert
from metronome_cli.models.weights.source import CheckpointSource, RandomSource, WeightSource


@dataclass(frozen=True, slots=True)
class BlockVariant:
    """What a block has beyond its shape. `embedding` and `head`: what the table and output matrix are
    called."""

    qkv_bias: bool = False
    head_norms: bool = False
    experts: ExpertShape | None = None
    eps: float = 1e-6
    embedding: str = "embed_tokens.weight"
    embedding_rows: int | None = None  # where they are not the shape's vocabulary
    embedding_width: int | None = None  # where it is not the decoder's
    head: str = "lm_head.weight"


def working_dtype(shape: ModelShape, device: torch.device) -> torch.dtype:
    """float32 on a CPU; the shape's own elsewhere, bfloat16 in place of 8 bits."""
    if device.type == "cpu" or shape.dtype == "float32":
        return torch.float32
    return torch.float16 if shape.dtype == "float16" else torch.bfloat16


def weight_source(
    checkpoint: Checkpoint | None,
    layouts: Sequence[CheckpointLayout],
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
) -> WeightSource:
    """The checkpoint's tensors through these layouts, or random ones where there is no checkpoint."""
    if checkpoint is None:
        return RandomSource(seed, device, dtype)
    return CheckpointSource(checkpoint, layouts, device, dtype)


def decoder_layouts(
    body: str, head: str, form: BlockVariant, *, tied: bool = False
) -> list[CheckpointLayout]:
    """Layouts of a decoder whose own names follow `body`, and whose head is called `head`.

    `tied`: the embedding table serves where the file has no head. Experts are read stacked, or one by one.
    """

    def plain(name: str) -> TensorRecipe:
        return TensorRecipe((head if name == form.head else body + name,))

    def one_by_one(name: str) -> TensorRecipe | None:
        if form.experts is None or ".experts." not in name:
            return None
        stem, _, kind = (body + name).rpartition(".")
        parts = ("gate", "up") if kind == "gate_up_proj" else ("down",)
        sources = [f"{stem}.{e}.{part}_proj.weight" for e in range(form.experts.count) for part in parts]
        return TensorRecipe(tuple(sources), _grouped(len(parts)))

    layouts: list[CheckpointLayout] = [plain, one_by_one]
    if tied:
        layouts.append(lambda name: TensorRecipe((body + form.embedding,)) if name == form.head else None)
    return layouts


def _grouped(parts: int) -> Callable[[Sequence[Tensor]], Tensor]:
    """One matrix an expert and part, to [experts, parts x out, in]."""

    def build(tensors: Sequence[Tensor]) -> Tensor:
        stacked = torch.stack(list(tensors))
        return stacked.view(-1, parts * stacked.shape[1], stacked.shape[2])

    return build


def load_decoder(
    source: WeightSource, shape: ModelShape, form: BlockVariant
) -> tuple[DecoderWeights, Vocabulary]:
    """The decoder, and its embedding table and head."""
    before = source.taken
    layers = [_layer(source, shape, form, f"layers.{index}.") for index in range(shape.layers)]
    norm = source.tensor("norm.weight", shape.hidden_size, value=1.0)
    head = source.tensor(form.head, shape.need("vocab_size"), shape.hidden_size)
    read = source.taken - before
    rows, width = form.embedding_rows or shape.need("vocab_size"), form.embedding_width or shape.hidden_size
    table = source.tensor(form.embedding, rows, width, fan_in=1)
    decoder = DecoderWeights(
        layers=layers,
        final_norm=norm,
        rotary=Rotary.plain(shape.head_dim, shape.rotary_base),
        eps=form.eps,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        hidden=shape.hidden_size,
        dtype=source.dtype,
        device=source.device,
        source="random" if isinstance(source, RandomSource) else "checkpoint",
        parameters=read,
    )
    return decoder, Vocabulary(table, Projection(head))


def _layer(source: WeightSource, shape: ModelShape, form: BlockVariant, at: str) -> LayerWeights:
    into_residual = (2 * shape.layers) ** -0.5
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    parts = [("q", queries), ("k", keys), ("v", keys)]
    qkv = [
        source.tensor(f"{at}self_attn.{name}_proj.weight", rows, shape.hidden_size) for name, rows in parts
    ]
    bias = None
    if form.qkv_bias:
        bias = torch.cat(
            [source.tensor(f"{at}self_attn.{name}_proj.bias", rows, value=0.0) for name, rows in parts]
        )
    norms = [
        source.tensor(f"{at}self_attn.{name}_norm.weight", shape.head_dim, value=1.0)
        if form.head_norms
        else None
        for name in "qk"
    ]
    return LayerWeights(
        input_norm=source.tensor(f"{at}input_layernorm.weight", shape.hidden_size, value=1.0),
        qkv=Projection(torch.cat(qkv), bias),
        query_norm=norms[0],
        key_norm=norms[1],
        output=Projection(
            source.tensor(f"{at}self_attn.o_proj.weight", shape.hidden_size, queries, gain=into_residual)
        ),
        mlp_norm=source.tensor(f"{at}post_attention_layernorm.weight", shape.hidden_size, value=1.0),
        **_mlp(source, shape, form, f"{at}mlp.", into_residual),
    )


def _mlp(source: WeightSource, shape: ModelShape, form: BlockVariant, at: str, gain: float) -> dict[str, Any]:
    if form.experts is not None:
        return {"mixture": _experts(source, shape, form.experts, at, gain)}
    gate, up, down = _gated(source, at, shape.hidden_size, shape.need("intermediate_size"), gain)
    return {"gate": gate, "up": up, "down": down}


def _gated(
    source: WeightSource, at: str, hidden: int, width: int, gain: float
) -> tuple[Projection, Projection, Projection]:
    return (
        Projection(source.tensor(f"{at}gate_proj.weight", width, hidden)),
        Projection(source.tensor(f"{at}up_proj.weight", width, hidden)),
        Projection(source.tensor(f"{at}down_proj.weight", hidden, width, gain=gain)),
    )


def _experts(source: WeightSource, shape: ModelShape, experts: ExpertShape, at: str, gain: float) -> Experts:
    count, width, hidden = experts.count, experts.mlp, shape.hidden_size
    shared = None
    if experts.shared:
        gated = _gated(source, f"{at}shared_expert.", hidden, experts.shared, gain)
        shared = SharedExpert(*gated, weight=source.tensor(f"{at}shared_expert_gate.weight", 1, hidden))
    return Experts(
        shape=experts,
        router=source.tensor(f"{at}gate.weight", count, hidden),
        gate_up=source.tensor(f"{at}experts.gate_up_proj", count, 2 * width, hidden),
        down=source.tensor(f"{at}experts.down_proj", count, hidden, width, gain=gain),
        shared=shared,
    )
