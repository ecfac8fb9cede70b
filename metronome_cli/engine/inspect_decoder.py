"""What one forward pass of a `transformers` decoder shows of its attention, before it is run on a paged cache.

A decoder runs if every layer hands its queries, keys and values to the attention interface, with K and V of one width
and nothing that our attention does not compute (a bias by distance, a cap on scores, learned sink scores), and if it
writes them through the cache that it was given. This holds on the meta device too, where nothing is computed; there
only the question of rotary positions stays open.

Positions are rotary, for sinks that roll, if a key at position p is the key at position 0 turned by p: checked with
numbers, since families turn pairs in different orders, or only a part of each head.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from metronome_cli.engine.import_weights import TransformersDecoder, native_window, rotary_of
from metronome_cli.engine.rotary import Rotary, rotate

RECORDING_NAME = "metronome_record"  # an attention function that notes what it is handed
_NOT_COMPUTED = ("softcap", "s_aux", "sinks", "position_bias", "alibi", "head_mask", "indices")
_SHIFT = 7  # positions by which a key is turned in the check


@dataclass(frozen=True, slots=True)
class AttentionFacts:
    """Sizes of a decoder's attention. `rotary`: None if keys cannot be turned, so sinks cannot roll.

    `table_of_positions`: positions are looked up in a learned table, which ends.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None
    rotary: Rotary | None
    table_of_positions: bool


@dataclass(slots=True)
class _Record:
    """What the attention function was handed, layer by layer."""

    queries: list[tuple[int, ...]] = field(default_factory=list)
    values: list[tuple[int, ...]] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)
    scales: list[float | None] = field(default_factory=list)
    extras: set[str] = field(default_factory=set)
    causal: bool = True

    def attention(
        self, module: TransformersDecoder, query: Tensor, key: Tensor, value: Tensor, kwargs: dict[str, Any]
    ) -> None:
        """query: [B, heads, T, dim]; key, value: [B, kv_heads, T, dim]."""
        self.queries.append(tuple(query.shape))
        self.values.append(tuple(value.shape))
        self.keys.append(key.detach())
        self.scales.append(kwargs.get("scaling"))
        self.causal = self.causal and getattr(module, "is_causal", True) is not False
        self.extras |= {name for name in _NOT_COMPUTED if kwargs.get(name) is not None}


_RECORD: ContextVar[_Record | None] = ContextVar("metronome_record", default=None)


def _recording_attention(
    module: TransformersDecoder, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    if (record := _RECORD.get()) is not None:
        record.attention(module, query, key, value, kwargs)
    mixed: tuple[Tensor, None] = ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, mask, **kwargs)
    return mixed


AttentionInterface.register(RECORDING_NAME, _recording_attention)
AttentionMaskInterface.register(RECORDING_NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def inspect_decoder(decoder: TransformersDecoder) -> AttentionFacts:
    """The facts. Raises LookupError naming what cannot be run on a paged cache."""
    window = native_window(decoder.config)
    first, kept = _forward(decoder, position=0)
    layers = int(decoder.config.num_hidden_layers)
    name = type(decoder).__name__
    if len(first.keys) != layers or kept != layers:
        raise LookupError(
            f"{name}: {len(first.keys)} of {layers} layers attend through transformers' attention interface, "
            f"{kept} through its cache"
        )
    if not first.causal:
        raise LookupError(f"{name} attends to later positions too, as an encoder does")
    if first.extras:
        raise LookupError(f"{name}: its attention has {', '.join(sorted(first.extras))}")
    key, query, value = tuple(first.keys[0].shape), first.queries[0], first.values[0]
    if key[-1] != value[-1]:
        raise LookupError(f"{name}: keys of width {key[-1]} and values of width {value[-1]}")
    if (
        {tuple(k.shape) for k in first.keys} != {key}
        or len(set(first.queries)) > 1
        or len(set(first.scales)) > 1
    ):
        raise LookupError(f"{name}: its layers differ in their heads or scales")
    scale = first.scales[0]
    return AttentionFacts(
        layers=layers,
        heads=query[1],
        kv_heads=key[1],
        head_dim=key[-1],
        scale=key[-1] ** -0.5 if scale is None else float(scale),
        window=window,
        rotary=_rotary(decoder, first.keys[0]),
        table_of_positions=_has_table(decoder),
    )


def _forward(decoder: TransformersDecoder, position: int) -> tuple[_Record, int]:
    """One token at that position: what attention saw, and how many layers used the cache."""
    parameter = next(decoder.parameters())
    generator = torch.Generator().manual_seed(0)
    size = getattr(decoder.config, "word_embed_proj_dim", None) or decoder.config.hidden_size  # OPT projects
    embeds = torch.randn(1, 1, size, generator=generator).to(parameter.dtype)
    embeds = embeds.to(parameter.device)
    record, cache = _Record(), DynamicCache()
    before = decoder.config._attn_implementation
    decoder.set_attn_implementation(RECORDING_NAME)
    decoder.eval()
    at = torch.full((1, 1), position, dtype=torch.long, device=parameter.device)
    token = _RECORD.set(record)
    try:
        with torch.no_grad():
            decoder(inputs_embeds=embeds, position_ids=at, cache=cache, use_cache=True)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
        first_line = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise LookupError(
            f"{type(decoder).__name__} does not run with a plain cache: {first_line}"
        ) from error
    finally:
        _RECORD.reset(token)
        decoder.set_attn_implementation(before)
    kept = sum(isinstance(getattr(layer, "keys", None), Tensor) for layer in cache.layers)
    return record, kept


def _rotary(decoder: TransformersDecoder, at_zero: Tensor) -> Rotary | None:
    """The rotary table, if turning the first layer's key by it is what a later position does to that key."""
    if at_zero.device.type == "meta":
        return None
    try:
        rotary = rotary_of(decoder)
    except (LookupError, AttributeError):
        return None
    if 2 * len(rotary.inv_freq) != at_zero.shape[-1]:
        return None
    later, _ = _forward(decoder, position=_SHIFT)
    turned = _turned(at_zero.float(), rotary)
    return rotary if torch.allclose(turned, later.keys[0].float(), rtol=0.05, atol=0.05) else None


def _turned(keys: Tensor, rotary: Rotary) -> Tensor:
    """[1, heads, 1, dim] turned by `_SHIFT` positions."""
    import numpy as np

    cos, sin = rotary.turns(np.array([_SHIFT]), torch.float32, keys.device, scaled=False)
    rows = keys.transpose(1, 2).reshape(-1, keys.shape[1], keys.shape[3])
    return rotate(rows, cos, sin).reshape(1, 1, keys.shape[1], keys.shape[3]).transpose(1, 2)


def _has_table(decoder: TransformersDecoder) -> bool:
    """Whether positions are rows of a learned table: GPT-2's `wpe`, OPT's `embed_positions`."""
    return any(
        isinstance(module, torch.nn.Embedding) and name.rpartition(".")[2] in ("wpe", "embed_positions")
        for name, module in decoder.named_modules()
    )
