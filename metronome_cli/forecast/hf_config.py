"""A Hugging Face `config.json` as far as memory is concerned: KV bytes a token, context, weights.

Nothing is executed, and no library's default stands in for a value that the file does not give: a class's
defaults are often another checkpoint's. Several decoders may be nested in one file (thinker and talker);
the first of `PARTS` that has layers and heads is the main one, the others are named in the notes.

    KV bytes a token = 2 x layers x KV heads x head dim x bytes           (keys and values)
    with latent attention: layers x (kv_lora_rank + qk_rope_head_dim) x bytes
    weights = vocabulary x hidden (x 2 untied) + layers x (attention + gated MLP or experts)

Only layers of full attention keep a cache that grows; `layer_types` says which they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import shown

Dtype = Literal["float32", "bfloat16", "float16", "float8"]
DTYPES: Mapping[str, Dtype] = {
    "float32": "float32", "bfloat16": "bfloat16", "float16": "float16",
    "float8_e4m3fn": "float8", "float8": "float8",
}  # fmt: skip
PARTS = (
    ("thinker_config", "text_config"),
    ("text_config",),
    ("llm_config",),
    ("language_config",),
    ("decoder_config",),
    (),
)
ALIASES = {
    "layers": ("num_hidden_layers", "num_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels"),
    "hidden": ("hidden_size", "n_embd", "dim"),
    "mlp": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "context": ("max_position_embeddings", "seq_length", "n_positions"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "expert_mlp": ("moe_intermediate_size",),
    "shared_mlp": ("shared_expert_intermediate_size",),
    "top_k": ("num_experts_per_tok",),
    "latent": ("kv_lora_rank",),
    "latent_turned": ("qk_rope_head_dim",),
}
_MOST = 10**9


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The main decoder. `parameters` counts it alone; `active` those that one token passes through."""

    layers: int
    cached_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    mlp: int
    vocab: int
    context: int
    dtype: Dtype
    rope_theta: float
    kv_values_per_token: int  # numbers cached for one position
    parameters: int
    active: int
    window: int | None
    notes: tuple[str, ...]


def read_config(config: Mapping[str, Any], where: str = "config.json") -> DecoderConfig:
    """The decoder that a config describes. Raises UsageError naming the key that is missing or no such
    number.
    """
    name, part = _main_part(config, where)
    read = _ConfigReader(part, f"{where}: {name}" if name else where)
    layers, heads, hidden = read.need("layers"), read.need("heads"), read.need("hidden")
    kv_heads = read.get("kv_heads") or heads
    head_dim = read.get("head_dim") or hidden // heads
    if heads % kv_heads:
        raise UsageError(
            f"{read.where}: {heads} heads are no multiple of {kv_heads} KV heads", hint="check the file"
        )
    kinds = read.kinds(layers)
    window = _window(part, kinds)
    cached = layers if kinds is None or window else kinds.count("full_attention") or layers
    latent = read.get("latent") if part.get("kv_lora_rank") else None
    turned = read.get("latent_turned") if part.get("qk_rope_head_dim") else None
    per_layer = latent + (turned or 0) if latent else 2 * kv_heads * head_dim
    attention = 2 * hidden * (heads + kv_heads) * head_dim
    total, active = _mlp_parameters(read, part, layers, hidden)
    embedding = read.need("vocab") * hidden * (1 if part.get("tie_word_embeddings") else 2)
    return DecoderConfig(
        layers=layers,
        cached_layers=cached,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden=hidden,
        mlp=read.get("mlp") or read.need("expert_mlp"),
        vocab=read.need("vocab"),
        context=read.need("context"),
        dtype=_dtype(config, part),
        rope_theta=read.real("rope_theta", 10_000.0),
        kv_values_per_token=cached * per_layer,
        parameters=embedding + layers * attention + total,
        active=embedding + layers * attention + active,
        window=window,
        notes=tuple(_notes(config, name, layers, cached, window)),
    )


@dataclass(frozen=True, slots=True)
class _ConfigReader:
    part: Mapping[str, Any]
    where: str

    def get(self, what: str) -> int | None:
        for key in ALIASES[what]:
            value = self.part.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST:
                raise UsageError(
                    f"{self.where}: {key} is {shown(value)}", hint="it must be a positive whole number"
                )
            return value
        return None

    def kinds(self, layers: int) -> list[str] | None:
        """What each layer attends to, where the file says it."""
        found = self.part.get("layer_types")
        if found is None:
            return None
        if not isinstance(found, list) or not all(isinstance(kind, str) for kind in found):
            raise UsageError(
                f"{self.where}: layer_types is {shown(found)}", hint="it must be a list of words"
            )
        if len(found) != layers:
            raise UsageError(
                f"{self.where}: layer_types names {len(found)} of {layers} layers", hint="check the file"
            )
        return found

    def real(self, key: str, default: float) -> float:
        """A positive number with a fraction, perhaps."""
        value = self.part.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e12:
            raise UsageError(f"{self.where}: {key} is {shown(value)}", hint="it must be a positive number")
        return float(value)

    def need(self, what: str) -> int:
        value = self.get(what)
        if value is None:
            raise UsageError(
                f"{self.where}: none of {', '.join(ALIASES[what])} is given",
                hint="the file must state it; defaults of a class are not a checkpoint's values",
            )
        return value


def _main_part(config: Mapping[str, Any], where: str) -> tuple[str, Mapping[str, Any]]:
    for path in PARTS:
        part: Any = config
        for key in path:
            part = part.get(key) if isinstance(part, Mapping) else None
        if isinstance(part, Mapping) and _is_decoder(part):
            return ".".join(path), part
    raise UsageError(
        f"{where}: no decoder found (num_hidden_layers and num_attention_heads)",
        hint="give the config.json of a model that transformers can load",
    )


def _is_decoder(part: Mapping[str, Any]) -> bool:
    return all(any(key in part for key in ALIASES[what]) for what in ("layers", "heads"))


def _mlp_parameters(
    read: _ConfigReader, part: Mapping[str, Any], layers: int, hidden: int
) -> tuple[int, int]:
    """All MLP weights, and those that one token uses."""
    experts = read.get("experts")
    if experts is None or experts == 1:
        gates = 2 if "n_inner" in part or part.get("model_type") in ("gpt2", "opt", "whisper") else 3
        whole = layers * gates * hidden * read.need("mlp")
        return whole, whole
    each = 3 * hidden * (read.get("expert_mlp") or read.need("mlp"))
    common = 3 * hidden * (read.get("shared_mlp") or 0) + hidden * experts
    return layers * (experts * each + common), layers * ((read.get("top_k") or 1) * each + common)


def _dtype(config: Mapping[str, Any], part: Mapping[str, Any]) -> Dtype:
    for place in (part, config, config.get("thinker_config")):
        for key in ("dtype", "torch_dtype"):
            name = str(place.get(key, "") if isinstance(place, Mapping) else "").removeprefix("torch.")
            if name in DTYPES:
                return DTYPES[name]
    return "bfloat16"


def _window(part: Mapping[str, Any], kinds: Sequence[str] | None) -> int | None:
    """A sliding window that holds for every layer."""
    window = part.get("sliding_window")
    if not isinstance(window, int) or window <= 0 or part.get("use_sliding_window") is False:
        return None
    if kinds is not None and any(kind != "sliding_attention" for kind in kinds):
        return None
    return window


def _notes(config: Mapping[str, Any], name: str, layers: int, cached: int, window: int | None) -> list[str]:
    notes = [f"decoder read from {name}"] if name else []
    others = sorted(
        key for key, value in config.items() if isinstance(value, Mapping) and key.endswith("_config")
    )
    others = [key for key in others if key != name.partition(".")[0] and key != "quantization_config"]
    if others:
        notes.append(f"not in the pool's arithmetic: {', '.join(others)}")
    if cached != layers:
        notes.append(f"{cached} of {layers} layers keep a cache that grows")
    if window is not None:
        notes.append(f"declares a sliding window of {window} positions in every layer")
    if "quantization_config" in config:
        notes.append("quantised: weights are counted from the files where there are any")
    return notes
