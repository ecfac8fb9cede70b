"""`predict` from a Hugging Face config or checkpoint directory, and the memory of a device.

The file says what a position costs and how long the context is; how many positions a session adds is the
load's business and must be given: by a profile whose shape is replaced, or by the flags of `Load`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metronome_cli.commands.predict.checkpoint_size import read_model_config, weights_in
from metronome_cli.config.cache_groups import DTYPE_BYTES
from metronome_cli.config.profile import Profile
from metronome_cli.config.validation import validate
from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.hf_config import DecoderConfig, read_config
from metronome_cli.forecast.memory import WeightBytes


@dataclass(frozen=True, slots=True)
class SteadyLoad:
    """What one session does: positions into the cache each period, decoded while listening and speaking."""

    period_s: float
    into: float
    listening: int = 0
    speaking: int = 0
    speaking_share: float = 0.5
    turn_s: float = 8.0

    @classmethod
    def steady(cls, per_s: float) -> SteadyLoad:
        """So many positions a second, all the time."""
        return cls(period_s=1.0, into=per_s)


@dataclass(frozen=True, slots=True)
class CheckpointProfile:
    """What was read: a profile of the decoder under a load, its weights, and what to say about both."""

    profile: Profile
    weights: WeightBytes
    notes: tuple[str, ...]


def read_checkpoint(
    path: Path, load: SteadyLoad | Profile, session_length_s: float | None = None
) -> CheckpointProfile:
    """Read a config.json (or its directory). `load`: flags, or a profile that lends all but its shape.

    Raises UsageError naming the file and the key.
    """
    config, file = read_model_config(path)
    layout = read_config(config, str(file))
    weights = weights_in(path) or shape_weights(layout)
    data = _loaned(load) if isinstance(load, Profile) else _from_load(load)
    data["shape"] = _shape(layout, weights)
    data["pool"] = None
    if session_length_s is not None:
        data["session_length"] = f"{session_length_s:.9f}s"
    notes = [f"shape from {file.name}", *layout.notes]
    if layout.window is not None and not isinstance(load, Profile):
        data["policy"] = f"window({layout.window})"
    profile = validate(Profile, data, str(file), {"plain_numbers": True})
    return CheckpointProfile(profile, weights, tuple(notes))


def shape_weights(layout: DecoderConfig) -> WeightBytes:
    """Weights of the decoder alone, from its shape."""
    size = layout.parameters * DTYPE_BYTES[layout.dtype]
    return WeightBytes(
        size, f"{layout.parameters:,} parameters of {layout.dtype}, from the decoder's shape; no towers"
    )


def _loaned(profile: Profile) -> dict[str, Any]:
    data: dict[str, Any] = profile.model_dump(mode="json")
    data["adapter"] = None
    data["adapter_options"] = {}
    return data


def _from_load(load: SteadyLoad) -> dict[str, Any]:
    return {
        "name": "config",
        "title": "From a config.json",
        "frame": {"period": load.period_s, "sample_rate": 16_000},
        "tokens": {"into": load.into, "out": {"listening": load.listening, "speaking": load.speaking}},
        "turns": {"speaking_share": load.speaking_share, "turn": load.turn_s},
        "policy": "unbounded",
    }


def _shape(layout: DecoderConfig, weights: WeightBytes) -> dict[str, Any]:
    """A shape that caches as many numbers a position: one KV head stands for a cache that is not made of
    heads.
    """
    plain = layout.kv_values_per_token == 2 * layout.cached_layers * layout.kv_heads * layout.head_dim
    each = math.ceil(layout.kv_values_per_token / (2 * layout.cached_layers))
    return {
        "layers": layout.cached_layers,
        "heads": layout.heads,
        "kv_heads": layout.kv_heads if plain else 1,
        "head_dim": layout.head_dim if plain else each,
        "hidden": layout.hidden,
        "mlp": layout.mlp,
        "vocab": layout.vocab,
        "dtype": layout.dtype,
        "context": layout.context,
        "rope_theta": layout.rope_theta,
        "parameters": layout.parameters,
        "active_parameters": layout.active,
        "weight_bytes": weights.size,
    }


def load_from(
    period_s: float | None,
    into: float | None,
    out: tuple[int, int] | None,
    per_s: float | None,
    share: float | None = None,
    turn_s: float | None = None,
) -> SteadyLoad | None:
    """A load from flags, None when none was given. Raises UsageError for a half of one, or for two."""
    detailed = [value for value in (period_s, into, out) if value is not None]
    if per_s is not None and detailed:
        raise UsageError(
            "--tokens-per-second says all; --period, --tokens-in and --tokens-out contradict it",
            hint="give one or the other",
        )
    if per_s is not None:
        return SteadyLoad.steady(per_s)
    if not detailed:
        return None
    if period_s is None or into is None:
        raise UsageError(
            "a load needs --period and --tokens-in", hint="or --tokens-per-second for a steady one"
        )
    speaking, listening = out or (0, 0)
    return SteadyLoad(period_s, into, listening, speaking, 0.5 if share is None else share, turn_s or 8.0)
