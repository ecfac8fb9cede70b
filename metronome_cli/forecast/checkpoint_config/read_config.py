"""A configuration file as what a planner needs: cache groups, weights, context, rotary base.

Nothing is executed, and no library's default stands in for a value of the cache that the file does not give: a
class's defaults are often another checkpoint's. Weights that the file cannot tell are unknown, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metronome_cli.config.cache_groups import (
    DTYPE_BYTES,
    CacheGroup,
    Dtype,
    growing_bytes_per_token,
)
from metronome_cli.config.profile_files import profile_names
from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.checkpoint_config.encoder_caches import encoder_caches
from metronome_cli.forecast.checkpoint_config.fields import MOST_LAYERS, Fields
from metronome_cli.forecast.checkpoint_config.files import config_files, parse_config
from metronome_cli.forecast.checkpoint_config.find_decoder import ELSEWHERE, Candidate, find_decoder
from metronome_cli.forecast.checkpoint_config.groups import cache_groups, common_head_dim, common_kv_heads
from metronome_cli.forecast.checkpoint_config.layer_kinds import Layer, read_layers
from metronome_cli.forecast.checkpoint_config.parameters import count_parameters
from metronome_cli.forecast.checkpoint_config.precision import cache_dtype, weight_bits, weight_dtype
from metronome_cli.forecast.checkpoint_config.rotary_base import CLASS_DEFAULTS, rope_theta

OWN = ("default", "smoke")  # profiles of no published model
DEFAULT_DTYPE: Dtype = "bfloat16"  # of speech models as published; said in a note where it is assumed


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The main decoder of a checkpoint. None: the file does not say.

    `parameters` counts the decoder alone; `active` those that one token passes through.
    """

    model_type: str
    published_name: str  # `_name_or_path`, "" if not given
    groups: tuple[CacheGroup, ...]
    layers: int
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    hidden: int | None
    mlp: int | None
    vocab: int | None
    context: int | None
    rope_theta: float | None
    dtype: Dtype
    weight_bits: float | None
    parameters: int | None
    active: int | None
    notes: tuple[str, ...]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one position adds (`config/cache_groups.py`)."""
        return growing_bytes_per_token(self.groups)


def read_checkpoint_config(path: Path) -> tuple[DecoderConfig, Path]:
    """The decoder of a checkpoint, and the file that describes it. `path`: the file or its directory.

    Raises UsageError naming the file and the key, if none of the checkpoint's files describes a decoder.
    """
    first: UsageError | None = None
    for file in config_files(path):
        try:
            parsed = parse_config(file)
            return read_config(parsed.config, str(file), parsed.quantised), file
        except UsageError as error:
            first = first or error
    assert first is not None  # config_files gives at least one file
    raise _with_profile(first, path)


def _with_profile(error: UsageError, path: Path) -> UsageError:
    """The same error; if no decoder is described and a profile has the checkpoint's name, its hint names it."""
    folder = (path if path.is_dir() else path.parent).resolve().name.lower()
    named = [name for name in profile_names() if len(name) > 4 and name not in OWN and name in folder]
    if error.hint != ELSEWHERE or not named:
        return error
    return UsageError(error.message, hint=f"a profile of that name ships: --profile {max(named, key=len)}")


def read_config(
    config: Mapping[str, Any], where: str = "config.json", quantised: Mapping[str, Any] | None = None
) -> DecoderConfig:
    """The decoder that a configuration describes; `quantised`: what hf_quant_config.json says beside it.

    Raises UsageError naming the key that is missing, has an impossible value, or has a law that is not known.
    """
    main, others = find_decoder(config, where)
    read = Fields(main.part, f"{where}: {main.dotted}" if main.path else where)
    stated = weight_dtype(config, main.path, where)
    dtype = stated or DEFAULT_DTYPE
    kept = cache_dtype(config, main.path, quantised or {}, where)
    layers, context = _layers(read), read.count("context")
    heads, hidden = read.count("heads"), read.count("hidden")
    native = read.key("context") == "context"
    ring = context if native else None
    kinds = read_layers(read, layers, context)
    groups = cache_groups(read, kinds, dtype, kept[0] if kept else dtype, ring)
    groups += encoder_caches(config, main.path, where, dtype)
    if not groups:
        raise read.unknown(
            [key for key in ("layer_types", "block_configs") if key in read.part], "no layer keeps a cache"
        )
    total, active, unknown = count_parameters(read, kinds)
    width = hidden is not None and heads is not None
    return DecoderConfig(
        model_type=_one_line(config.get("model_type") or main.part.get("model_type") or "unknown"),
        published_name=_one_line(config.get("_name_or_path") or ""),
        groups=groups,
        layers=layers,
        heads=heads,
        kv_heads=common_kv_heads(read, heads),
        head_dim=common_head_dim(read, heads, hidden) if width or read.key("head_dim") else None,
        hidden=hidden,
        mlp=_widest_mlp(read, layers),
        vocab=read.count("vocab"),
        context=context,
        rope_theta=rope_theta(read),
        dtype=dtype,
        weight_bits=(bits := weight_bits(config, main.path, dtype)),
        parameters=total,
        active=active,
        notes=(
            *_where_notes(main, others, where),
            *_precision_notes(stated, kept, bits, dtype),
            *_layer_notes(read, kinds, groups),
            *_rotary_notes(main, rope_theta(read)),
            *((f"weights of the decoder are unknown: {unknown}",) if unknown else ()),
        ),
    )


def _one_line(value: object) -> str:
    """A name on one line, without control codes."""
    text = "".join(char if char.isprintable() else " " for char in str(value)[:200])
    return " ".join(text.split())[:60]


def _layers(read: Fields) -> int:
    for key in ("layers_block_type", "hybrid_override_pattern"):
        listed = read.part.get(key)
        if isinstance(listed, list | str) and 0 < len(listed) <= MOST_LAYERS and read.key("layers") is None:
            return len(listed)
    return read.need("layers", MOST_LAYERS)


def _widest_mlp(read: Fields, layers: int) -> int | None:
    """Width of the MLP that one token goes through, for the memory of activations: the widest layer's."""
    key = read.key("mlp")
    if key is not None and isinstance(read.part[key], list):
        return max(read.counts("mlp", layers, 1) or [0]) or None
    wide = read.count("mlp")
    each, taken = read.count("expert_mlp"), read.count("top_k")
    return max(wide or 0, (each or 0) * (taken or 1)) or None


def _where_notes(main: Candidate, others: Sequence[Candidate], where: str) -> list[str]:
    notes = [f"decoder read from {main.dotted}"] if main.path else []
    for other in others:
        if other.path[: len(main.path)] == main.path and not other.side():
            continue
        notes.append(f"beside it, not in the arithmetic: {other.dotted}{_cost(other, where)}")
    return notes


def _cost(other: Candidate, where: str) -> str:
    """What a position of another decoder takes, if its group of keys says it."""
    try:
        read = Fields(other.part, where)
        layers = read.need("layers", MOST_LAYERS)
        groups = cache_groups(
            read, read_layers(read, layers, read.count("context")), "bfloat16", "bfloat16", None
        )
    except UsageError:
        return ""
    return f" ({layers} layers, {growing_bytes_per_token(groups):,} bytes per position)"


def _precision_notes(
    stated: Dtype | None, kept: tuple[Dtype, str] | None, bits: float | None, dtype: Dtype
) -> list[str]:
    notes = [] if stated else [f"the file names no number type; {DEFAULT_DTYPE} is assumed"]
    if kept:
        size = DTYPE_BYTES[kept[0]]
        notes.append(f"{kept[1]}: the cache has {size} byte(s) per number, unless the engine is told another")
    if bits != 8 * DTYPE_BYTES[dtype]:
        size_of = "weights of unknown size" if bits is None else f"{bits:g} bits per weight"
        notes.append(f"quantised: {size_of}, unless the files beside it say")
    return notes


def _rotary_notes(main: Candidate, theta: float | None) -> list[str]:
    """What the class would take, if no file says the rotary base."""
    if theta is not None or main.part.get("positional_embedding") is not None:
        return []
    kind = str(main.part.get("model_type") or main.dotted)
    default = next((base for name, base in CLASS_DEFAULTS.items() if name in kind), None)
    told = f"; its class's default is {default:,.0f}" if default else ""
    return [f"no file says the rotary base (rope_theta){told}"]


def _layer_notes(read: Fields, kinds: Sequence[Layer], groups: Sequence[CacheGroup]) -> list[str]:
    notes = []
    keep = sum(group.layers for group in groups if group.law in ("growing", "latent"))
    if keep and keep != len(kinds):
        notes.append(f"{keep} layers keep a cache that grows without a bound, of {len(kinds)} layers")
    for group in groups:
        if group.limit is not None:
            notes.append(f"{group.name}: {group.layers} layers, {group.limit:,} positions")
        if group.law == "state":
            size = "size not in the file" if group.state_bytes is None else f"{group.state_bytes:,} bytes"
            notes.append(f"{group.name} of {group.layers} layers: {size}, once per session")
        if group.law == "shared":
            notes.append(f"{group.layers} {group.name}")
    if read.flag("attention_k_eq_v"):
        notes.append(
            "attention_k_eq_v: K and V are the same numbers; half is kept if the engine stores them once"
        )
    extra = read.count("num_nextn_predict_layers", least=0) or read.count("mtp_num_hidden_layers", least=0)
    if extra and "mtp" in read.text("model_type"):
        notes.append(f"{extra} of {len(kinds)} layers predict further tokens and keep a cache too")
    elif extra:
        notes.append(
            f"{extra} multi-token prediction layer(s) are not counted; they keep a cache if the engine runs them"
        )
    return notes
