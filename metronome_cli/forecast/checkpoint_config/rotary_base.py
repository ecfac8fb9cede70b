"""The rotary base (theta) of a decoder, wherever its file puts it."""

from __future__ import annotations

from collections.abc import Mapping

from metronome_cli.forecast.checkpoint_config.fields import ALIASES, Fields

_NESTED = ("rope_parameters", "rope_scaling", "rope", "attn_config", "rotary")
_NO_ROTARY = ("none", "sin", "sinusoidal", "learned", "absolute", "alibi")
CLASS_DEFAULTS = {
    "lfm": 1e6,
    "qwen3": 1e6,
    "qwen2": 1e6,
    "llama": 1e4,
    "mistral": 1e4,
}  # of published checkpoints
GLM_BASE = 10_000.0  # ChatGLM's code multiplies this base by rope_ratio


def rope_theta(read: Fields) -> float | None:
    """The base of layers that attend to everything; None if the file does not say, or there is no rotary part.

    Looked for in the keys of the decoder, in `rope_parameters` (one group, or one for each kind of layer) and in
    older nested groups. Raises UsageError for a value that is no positive number.
    """
    if any(
        read.text(key).lower() in _NO_ROTARY for key in ("positional_embedding", "position_embedding_type")
    ):
        return None
    for key in ALIASES["rope_theta"]:
        if isinstance(read.part.get(key), list) and read.part[key]:
            continue  # one base for each layer: the groups below, or none
        if (value := read.real(key)) is not None:
            return value
    for key in _NESTED:
        if isinstance(read.part.get(key), Mapping) and (found := _nested(Fields(read.part[key], read.where))):
            return found
    ratio = read.real("rope_ratio")
    return None if ratio is None else GLM_BASE * ratio


def _nested(read: Fields) -> float | None:
    if (value := read.real("rope_theta")) is not None:
        return value
    kinds = [
        key
        for key in ("full_attention", "global_attention", *read.part)
        if isinstance(read.part.get(key), Mapping)
    ]
    for key in kinds:
        if (value := Fields(read.part[key], f"{read.where}: {key}").real("rope_theta")) is not None:
            return value
    return None
