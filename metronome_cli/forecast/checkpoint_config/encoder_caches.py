"""Caches that a streaming audio encoder keeps beside the decoder, and cross-attention of encoder-decoders.

A causal encoder with a sliding window (Voxtral Realtime) keeps a ring of its own. An encoder-decoder keeps
K and V of the encoder's output in every decoder layer, once per session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metronome_cli.config.cache_groups import CacheGroup, Dtype
from metronome_cli.forecast.checkpoint_config.fields import MOST_LAYERS, Fields
from metronome_cli.forecast.checkpoint_config.groups import make_group

_ENCODERS = ("audio_config", "encoder_config", "encoder_args")


def encoder_caches(
    config: Mapping[str, Any], decoder: tuple[str, ...], where: str, dtype: Dtype
) -> tuple[CacheGroup, ...]:
    """Groups beside the main decoder's. Raises UsageError naming a key with an impossible value."""
    groups = []
    streaming = _streaming_encoder(config)
    if streaming is not None:
        groups.append(_ring(Fields(streaming, f"{where}: encoder"), dtype))
    main: Any = config
    for key in decoder:
        main = main[key]
    read = Fields(main, where)
    if main.get("is_encoder_decoder") is True and (positions := read.count("max_source_positions")):
        groups.append(_cross_attention(read, positions, dtype))
    return tuple(group for group in groups if group is not None)


def _streaming_encoder(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The encoder that attends causally over a window. Only Voxtral Realtime's files are known to have one."""
    inner = config.get("multimodal")
    inner = inner.get("whisper_model_args") if isinstance(inner, Mapping) else None
    if isinstance(inner, Mapping) and isinstance(found := inner.get("encoder_args"), Mapping):
        return found if found.get("causal") is True and found.get("sliding_window") else None
    found = config.get("audio_config")
    if isinstance(found, Mapping) and found.get("model_type") == "voxtral_realtime_encoder":
        return found if found.get("sliding_window") else None
    return None


def _ring(read: Fields, dtype: Dtype) -> CacheGroup:
    heads, hidden = read.need("heads"), read.need("hidden")
    width = (read.count("kv_heads") or heads) * (read.count("head_dim") or max(1, hidden // heads))
    return make_group(
        read, name="audio encoder", law="ring", layers=read.need("layers", MOST_LAYERS), key_width=width,
        value_width=width,        dtype=dtype, limit=read.need("window"), own_positions=True,
    )  # fmt: skip


def _cross_attention(read: Fields, positions: int, dtype: Dtype) -> CacheGroup:
    hidden = read.need("hidden")
    return make_group(
        read, name="cross-attention", law="ring", layers=read.need("layers", MOST_LAYERS), key_width=hidden,
        value_width=hidden, dtype=dtype, limit=positions, own_positions=True,
    )  # fmt: skip
