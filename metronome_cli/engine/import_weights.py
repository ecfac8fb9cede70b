"""Weights for the fast way out of a `transformers` decoder, where its block is of the form that `fast` knows.

The test is of form, not of name: each block must have exactly the parameters of one known kind, SiLU, one
rotary table that does not change with length, and the same attention span in every layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from metronome_cli.engine.decoder_weights import DecoderWeights, LayerWeights
from metronome_cli.engine.projection import Projection
from metronome_cli.engine.rotary import Rotary

TransformersDecoder = (
    Any  # a transformers decoder without its head, or a part of one: known by its attributes
)
FAMILY = frozenset({"llama", "mistral", "qwen2", "qwen3", "moshi"})
STEADY_ROPE = frozenset({"default", "linear", "llama3", "yarn"})  # inv_freq does not depend on the length
SPAN_UNUSED = frozenset({"moshi"})  # has the key `sliding_window`; its attention does not read it
_NORMS = frozenset({"input_layernorm.weight", "post_attention_layernorm.weight"})
_ATTENTION = frozenset(f"self_attn.{part}_proj.weight" for part in "qkvo")
_BIASES = frozenset(f"self_attn.{part}_proj.bias" for part in "qkvo")
_HEAD_NORMS = frozenset({"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
_GATED = frozenset(f"mlp.{part}_proj.weight" for part in ("gate", "up", "down"))
_MOSHI = frozenset(f"self_attn.{part}_proj.linear.weight" for part in "qkvo") | {
    "mlp.fc1.weight",
    "mlp.fc2.weight",
}


def rotary_of(decoder: TransformersDecoder) -> Rotary:
    """The rotary table of a decoder: its own, or its first block's. Raises LookupError when it has none."""
    for owner in (decoder, *(layer.self_attn for layer in decoder.layers[:1])):
        table = getattr(owner, "rotary_emb", None)
        if table is not None and hasattr(table, "inv_freq"):
            return Rotary(_exact(table), float(getattr(table, "attention_scaling", 1.0)))
    raise LookupError(f"{type(decoder).__name__} has no rotary table")


def _exact(table: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The table's float32 frequencies in float64: the numbers that the model's own angles are made of."""
    frequencies: np.ndarray[Any, np.dtype[np.float64]] = table.inv_freq.detach().cpu().double().numpy()
    return frequencies


def native_window(config: Any) -> int | None:
    """Keys that the model attends at most, or None. Raises LookupError when its layers differ in that."""
    if config.model_type in SPAN_UNUSED:
        return None
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"])
    if kinds == {"full_attention"}:
        return None
    if kinds == {"sliding_attention"} and window:
        return int(window)
    raise LookupError(f"layers attend differently: {', '.join(sorted(kinds))}")


def supports_native_layers(decoder: TransformersDecoder) -> bool:
    """Whether `take` gives weights that compute what this decoder computes."""
    config = decoder.config
    if config.model_type not in FAMILY or _activation(config) != "silu":
        return False
    try:
        native_window(config)
        rotary_of(decoder)
    except LookupError:
        return False
    if (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default") not in STEADY_ROPE:
        return False
    return all(_known(frozenset(dict(layer.named_parameters()))) for layer in decoder.layers)


def _activation(config: Any) -> str:
    return str(getattr(config, "hidden_act", ""))


def _known(names: frozenset[str]) -> bool:
    rest = names - _NORMS
    if rest == _MOSHI:
        return True
    extras = rest - _ATTENTION - _GATED
    return names >= (_ATTENTION | _GATED | _NORMS) and extras <= _BIASES | _HEAD_NORMS


def import_weights(decoder: TransformersDecoder, head: TransformersDecoder | None = None) -> DecoderWeights:
    """Weights of a decoder that `fits_fast`, packed; `head` is its output matrix, a Linear, if wanted."""
    config = decoder.config
    attention = decoder.layers[0].self_attn
    norm = decoder.norm
    weight = norm.weight.detach()
    layers = [_layer(layer) for layer in decoder.layers]
    return DecoderWeights(
        layers=layers,
        final_norm=weight.clone(),
        rotary=rotary_of(decoder),
        eps=float(config.rms_norm_eps),
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=attention.head_dim,
        hidden=config.hidden_size,
        dtype=weight.dtype,
        device=weight.device,
        native_window=native_window(config),
        embedding=decoder.embed_tokens.weight.detach(),
        head=None if head is None else Projection(head.weight, getattr(head, "bias", None)),
        source=type(decoder).__name__,
        parameters=sum(p.numel() for layer in decoder.layers for p in layer.parameters()),
    )


def _layer(layer: TransformersDecoder) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    parts = [_linear(getattr(attention, f"{name}_proj")) for name in ("q", "k", "v", "o")]
    biases = [bias for _, bias in parts[:3]]
    fused_bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
    gate, up, down = _gated(mlp)
    return LayerWeights(
        input_norm=layer.input_layernorm.weight.detach().clone(),
        qkv=Projection(torch.cat([weight for weight, _ in parts[:3]]), fused_bias),
        query_norm=_weight_of(attention, "q_norm"),
        key_norm=_weight_of(attention, "k_norm"),
        output=Projection(*parts[3]),
        mlp_norm=layer.post_attention_layernorm.weight.detach().clone(),
        gate=Projection(gate),
        up=Projection(up),
        down=Projection(down),
    )


def _linear(module: TransformersDecoder) -> tuple[Tensor, Tensor | None]:
    inner: TransformersDecoder = getattr(module, "linear", module)  # Moshi wraps its Linear
    bias = inner.bias
    return inner.weight.detach(), None if bias is None else bias.detach()


def _gated(mlp: TransformersDecoder) -> tuple[Tensor, Tensor, Tensor]:
    """Gate, up, down. Moshi's fc1 holds the gate's rows and then up's."""
    if hasattr(mlp, "fc1"):
        gate, up = mlp.fc1.weight.detach().chunk(2)
        return gate.contiguous(), up.contiguous(), mlp.fc2.weight.detach()
    return mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach(), mlp.down_proj.weight.detach()


def _weight_of(module: TransformersDecoder, name: str) -> Tensor | None:
    norm = getattr(module, name, None)
    return None if norm is None else norm.weight.detach().clone()
