"""`predict` from a Hugging Face config or checkpoint directory, and the memory of a device.

The file gives the bytes per position and the context length. The positions that a session adds are not in it: they come
from a profile whose shape is replaced, or from the flags of `Load`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metronome_cli.commands.predict.checkpoint_size import weights_in
from metronome_cli.config.cache_groups import grows_until, pool_groups
from metronome_cli.config.profile import Profile
from metronome_cli.config.validation import validate
from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.checkpoint_config.read_config import DecoderConfig, read_checkpoint_config
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
        """Return a load of a constant number of positions per second."""
        return cls(period_s=1.0, into=per_s)


@dataclass(frozen=True, slots=True)
class CheckpointProfile:
    """What was read: a profile of the decoder under a load, its weights (None: unknown), and notes on both."""

    profile: Profile
    decoder: DecoderConfig
    file: Path
    weights: WeightBytes | None
    notes: tuple[str, ...]


def read_checkpoint(
    path: Path, load: SteadyLoad | Profile, session_length_s: float | None = None
) -> CheckpointProfile:
    """Read a checkpoint's configuration (the file or its directory). `load`: flags, or a profile that lends all
    but its shape.

    Raises UsageError naming the file and the key.
    """
    decoder, file = read_checkpoint_config(path)
    weights = weights_in(path) or shape_weights(decoder)
    data = _loaned(load) if isinstance(load, Profile) else _from_load(load)
    data["shape"] = shape_data(decoder, weights)
    data["kv_pool"] = None
    if session_length_s is not None:
        data["session_length"] = f"{session_length_s:.9f}s"
    if data["policy"] == "unbounded":
        data["policy"] = bounded_policy(decoder)
    profile = validate(Profile, data, str(file), {"plain_numbers": True})
    return CheckpointProfile(profile, decoder, file, weights, (f"shape from {file.name}", *decoder.notes))


def shape_weights(decoder: DecoderConfig) -> WeightBytes | None:
    """Weights of the decoder alone, from its shape; None if the file does not tell them."""
    if decoder.parameters is None or decoder.weight_bits is None:
        return None
    size = round(decoder.parameters * decoder.weight_bits / 8)
    each = f"{decoder.weight_bits:g} bits"
    return WeightBytes(
        size, f"{decoder.parameters:,} parameters of {each}, from the decoder's shape; no towers"
    )


def bounded_policy(decoder: DecoderConfig) -> str:
    """The cache policy that the model itself has: a ring or a window if every layer is bounded."""
    until = grows_until(decoder.groups)
    if until is None:
        return "unbounded"
    rings = all(group.law == "ring" for group in pool_groups(decoder.groups))
    return f"{'ring' if rings else 'window'}({until})"


def shape_data(decoder: DecoderConfig, weights: WeightBytes | None) -> dict[str, Any]:
    """A profile's `shape`. Groups are written out unless every layer keeps K and V of equal width."""
    kv_heads, head_dim = decoder.kv_heads or 1, decoder.head_dim or 1
    heads = max(decoder.heads or 1, kv_heads)
    known = {
        "parameters": decoder.parameters,
        "active_parameters": decoder.active,
        "weight_bytes": None if weights is None else weights.size,
        "intermediate_size": None if decoder.parameters is None else decoder.mlp,
        "vocab_size": decoder.vocab,
        "context_length": decoder.context,
        "kv_dtype": _cache_dtype(decoder),
    }
    shape: dict[str, Any] = {
        "layers": decoder.layers,
        "heads": heads if heads % kv_heads == 0 else kv_heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_size": decoder.hidden or heads * head_dim,
        "dtype": decoder.dtype,
        "rope_theta": decoder.rope_theta,
        **{key: value for key, value in known.items() if value is not None},
    }
    if not _is_plain(decoder, kv_heads * head_dim):
        shape["cache"] = [group.model_dump(mode="json") for group in decoder.groups]
    return shape


def _is_plain(decoder: DecoderConfig, width: int) -> bool:
    """One group of all layers, which a policy may bound."""
    first = decoder.groups[0]
    return (
        len(decoder.groups) == 1
        and first.law in ("growing", "windowed", "ring")
        and (first.layers, first.key_width, first.value_width) == (decoder.layers, width, width)
    )


def _cache_dtype(decoder: DecoderConfig) -> str | None:
    kept = next((group.dtype for group in decoder.groups if group.bytes_per_position), decoder.dtype)
    return None if kept == decoder.dtype else kept


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
        "tokens": {"prefill": load.into, "decode": {"listening": load.listening, "speaking": load.speaking}},
        "turn_taking": {"speaking_share": load.speaking_share, "mean_turn": load.turn_s},
        "policy": "unbounded",
    }


def load_from(
    period_s: float | None,
    into: float | None,
    out: tuple[int, int] | None,
    per_s: float | None,
    share: float | None = None,
    turn_s: float | None = None,
) -> SteadyLoad | None:
    """Return the load from flags, or None. Raises UsageError if it is incomplete or given twice."""
    detailed = [value for value in (period_s, into, out) if value is not None]
    if per_s is not None and detailed:
        raise UsageError(
            "--tokens-per-second excludes --period, --prefill-tokens and --decode-tokens",
            hint="give one or the other",
        )
    if per_s is not None:
        return SteadyLoad.steady(per_s)
    if not detailed:
        return None
    if period_s is None or into is None:
        raise UsageError(
            "a load needs --period and --prefill-tokens", hint="or --tokens-per-second for a steady one"
        )
    speaking, listening = out or (0, 0)
    return SteadyLoad(period_s, into, listening, speaking, 0.5 if share is None else share, turn_s or 8.0)
