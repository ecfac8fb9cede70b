"""From what each layer keeps to cache groups: widths of K and V, latent vectors, states, and extra layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from metronome_cli.config.cache_groups import CacheGroup, CacheLaw, Dtype
from metronome_cli.config.fields import PLAIN_NUMBERS
from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.checkpoint_config.fields import Fields
from metronome_cli.forecast.checkpoint_config.layer_kinds import Layer
from metronome_cli.forecast.checkpoint_config.states import state_bytes

_LAWS: dict[str, tuple[CacheLaw, str]] = {
    "full": ("growing", "full attention"),
    "windowed": ("windowed", "sliding window"),
    "chunked": ("chunked", "chunked attention"),
}
_DOUBLE_WIDTH = ("zamba", "zamba2")  # their shared attention reads hidden state and embedding side by side


@dataclass(frozen=True, slots=True)
class Widths:
    """Numbers that one position takes in one layer."""

    key: int
    value: int
    kv_heads: int
    head_dim: int


def make_group(read: Fields, **figures: Any) -> CacheGroup:
    """A cache group. Raises UsageError if the file's figures multiply to more than any machine holds."""
    try:
        return CacheGroup.model_validate(figures, context=PLAIN_NUMBERS)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UsageError(
            f"{read.where}: {figures['name']}: {'.'.join(map(str, first['loc'])) or 'cache'}: {first['msg']}",
            hint="check the sizes in the file",
        ) from None


def attention_widths(
    read: Fields, heads: int | None, hidden: int | None, *, windowed: bool = False
) -> Widths:
    """K and V of one layer. Windowed layers may have sizes of their own (`swa_*`), and so may full ones in files
    that give the window's sizes as the common ones (`global_*`). Raises UsageError naming the missing key.
    """
    kv_heads = _own(
        read, windowed, "swa_num_key_value_heads", "num_global_key_value_heads"
    ) or common_kv_heads(read, heads)
    head_dim = _own(read, windowed, "swa_head_dim", "global_head_dim") or common_head_dim(read, heads, hidden)
    value_dim = (read.count("swa_v_head_dim") if windowed else None) or read.count("v_head_dim") or head_dim
    if kv_heads is None or head_dim is None or value_dim is None:
        raise read.missing("heads" if heads is None else "hidden")
    if heads is not None and heads % kv_heads and heads > kv_heads:
        raise UsageError(
            f"{read.where}: {heads} heads are no multiple of {kv_heads} KV heads", hint="check the file"
        )
    return Widths(kv_heads * head_dim, kv_heads * value_dim, kv_heads, head_dim)


def common_kv_heads(read: Fields, heads: int | None) -> int | None:
    """KV heads of a layer without sizes of its own. `multi_query` means one, unless a number stands beside it."""
    grouped = read.flag("multi_query_attention")
    if (stated := read.key("kv_heads")) is not None and not (
        grouped is False and stated.startswith("multi_query")
    ):
        if isinstance(read.part[stated], list):
            return None  # one number for each layer
        if not (read.flag("multi_query") and read.flag("new_decoder_architecture") is False):
            return read.count("kv_heads")
    inner = read.inner("attn_config")  # DBRX and MPT
    if inner is not None and (own := inner.count("kv_n_heads")) is not None:
        return own
    if (inner is not None and inner.text("attn_type") == "multiquery_attention") or (
        read.flag("multi_query") and not read.flag("new_decoder_architecture")
    ):
        return 1
    repeat = read.count("kv_repeat") or 1  # Kyutai: query heads for each KV head
    return heads if heads is None or heads % repeat else heads // repeat


def common_head_dim(read: Fields, heads: int | None, hidden: int | None) -> int | None:
    """Head size of a layer without a size of its own: as given, else hidden size / heads."""
    stated = read.count("head_dim")
    if stated is not None or heads is None or hidden is None:
        return stated
    if hidden % heads and latent_width(read) is not None:
        return None  # latent attention has no head size of its own in the cache
    if hidden % heads:
        raise UsageError(
            f"{read.where}: hidden size {hidden} is no multiple of {heads} heads, and head_dim is not given",
            hint="the file must state head_dim",
        )
    return hidden // heads * (2 if read.text("model_type") in _DOUBLE_WIDTH else 1)


def latent_width(read: Fields) -> int | None:
    """Numbers that latent attention keeps for a position: the compressed vector and the rotary part of K."""
    rank = read.count("kv_lora_rank", least=0)
    return rank + (read.count("qk_rope_head_dim", least=0) or 0) if rank else None


def cache_groups(
    read: Fields, layers: Sequence[Layer], dtype: str, kv_dtype: Dtype, ring: int | None
) -> tuple[CacheGroup, ...]:
    """The groups of the main decoder. `ring`: positions of a ring that replaces full attention.

    Raises UsageError naming the key that a width needs.
    """
    heads, hidden = read.count("heads"), read.count("hidden")
    each = _kv_heads_of_layers(read, len(layers))
    counted: Counter[tuple[str, CacheLaw, int | None, int, int]] = Counter()
    for i, layer in enumerate(layers):
        if not layer.shares and layer.keeps.partition("+")[0] in _LAWS:
            own = layer.kv_heads or (each[i] if each else None)
            counted[_attention(read.layer(i), layer, own, heads, hidden, ring)] += 1
    twice = 2 if read.text("model_type") == "longcat_flash" else 1  # two attentions in one layer
    groups = [
        make_group(
            read, name=name, law=law, layers=twice * number, key_width=key, value_width=value, dtype=kv_dtype,
            limit=limit,
        )
        for (name, law, limit, key, value), number in counted.items()
    ]  # fmt: skip
    groups += _indexer(read, sum(counted.values()), kv_dtype)
    groups += _extra(read, heads, hidden, kv_dtype)
    groups += _states(read, sum(layer.keeps.endswith("state") for layer in layers), dtype)
    if shared := sum(layer.shares for layer in layers):
        groups.append(make_group(read, name="layers that read another's cache", law="shared", layers=shared))
    return tuple(groups)


def _attention(
    read: Fields, layer: Layer, kv_heads: int | None, heads: int | None, hidden: int | None, ring: int | None
) -> tuple[str, CacheLaw, int | None, int, int]:
    """Name, law, limit and the widths of K and V of one layer; `kv_heads`: its own, if the file lists them."""
    law, name = _LAWS[layer.keeps.partition("+")[0]]
    limit = layer.limit
    if law == "growing" and ring is not None:
        law, name, limit = "ring", "ring of positions", ring
    latent = latent_width(read)
    if latent is not None:
        return "latent attention", "latent" if law == "growing" else law, limit, latent, 0
    if kv_heads is None:
        widths = attention_widths(read, heads, hidden, windowed=law == "windowed")
        return name, law, limit, widths.key, widths.value
    head_dim = common_head_dim(read, heads, hidden)
    if head_dim is None:
        raise read.missing("hidden")
    return name, law, limit, kv_heads * head_dim, kv_heads * head_dim


def _kv_heads_of_layers(read: Fields, layers: int) -> list[int] | None:
    key = read.key("kv_heads")
    return read.counts("kv_heads", layers, 1) if key and isinstance(read.part[key], list) else None


def _indexer(read: Fields, layers: int, dtype: Dtype) -> list[CacheGroup]:
    """Sparse attention with an indexer keeps one more key for each position, of `index_head_dim`."""
    width = read.count("index_head_dim") if read.part.get("index_topk") is not None else None
    if width is None or not layers:
        return []
    return [make_group(read, name="indexer keys", law="growing", layers=layers, key_width=width, dtype=dtype)]


def _extra(read: Fields, heads: int | None, hidden: int | None, dtype: Dtype) -> list[CacheGroup]:
    """Layers beyond the main stack that keep a cache for every position: Kimi-Audio's second output branch."""
    extra = read.count("kimia_mimo_layers", least=0)
    if not extra:
        return []
    widths = attention_widths(read, heads, hidden)
    return [
        make_group(
            read, name="audio output branch", law="growing", layers=extra, key_width=widths.key,
            value_width=widths.value,            dtype=dtype,
        )
    ]  # fmt: skip


def _states(read: Fields, layers: int, dtype: str) -> list[CacheGroup]:
    if not layers:
        return []
    each = state_bytes(read, dtype)
    size = None if each is None else each * layers
    return [make_group(read, name="constant state", law="state", layers=layers, state_bytes=size)]


def _own(read: Fields, windowed: bool, in_window: str, in_full: str) -> int | None:
    return read.count(in_window if windowed else in_full)
