"""What each layer of a decoder keeps: attention over everything, a window or chunk of it, a state, or nothing.

Read, in this order, from a list of layers (`block_configs`, `layer_types` and its older names), from a pattern
(`hybrid_override_pattern`, `full_attention_interval` ...), or from a window with what says where it holds.
A word or a pattern that is not known is refused: its law would be a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from metronome_cli.core.quantities import shown
from metronome_cli.forecast.checkpoint_config.fields import ALIASES, Fields

Keeps = Literal["full", "windowed", "chunked", "state", "full+state", "windowed+state", "nothing"]
WORDS: dict[str, Keeps] = {
    **dict.fromkeys(("full_attention", "attention", "global_attention", "global", "full", "dense_attention",
                     "indexed_attention", "attn", "f", "*", "G"), "full"),
    **dict.fromkeys(("sliding_attention", "sliding_window_attention", "local_attention", "local", "sliding",
                     "swa", "window", "L"), "windowed"),
    "chunked_attention": "chunked",
    **dict.fromkeys(("linear_attention", "mamba", "mamba2", "recurrent", "conv", "short_conv", "kda", "gdn",
                     "gated_deltanet", "gated_delta_net", "lightning", "lightning_attention", "ssm", "M"), "state"),
    **dict.fromkeys(("hybrid", "parallel_hybrid", "mamba_attention"), "full+state"),
    "hybrid_sliding": "windowed+state",
    **dict.fromkeys(("mlp", "moe", "no_op", "identity", "-", "E"), "nothing"),
}  # fmt: skip
LISTS = ("layer_types", "layers_block_type", "block_types", "layer_block_types", "mixer_types")
# Families whose window follows a rule that their files may leave out: one layer in so many attends to all.
WINDOW_EVERY = {
    "gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gemma3n": 5, "gemma3n_text": 5, "cohere2": 4, "gpt_oss": 2,
    "exaone4": 4, "olmo3": 4,
}  # fmt: skip
WINDOW_NOWHERE = ("qwen2", "qwen3", "smollm3")  # their class attends to all unless use_sliding_window says so
NOT_ALL_LAYERS = ("gemma", "cohere", "gpt_oss", "exaone", "olmo", "afmoe", "dots", "llama4", "minimax")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. `limit`: positions of its window or chunk; `kv_heads` only if it differs from the file's."""

    keeps: Keeps
    limit: int | None = None
    kv_heads: int | None = None
    shares: bool = False  # reads another layer's cache and keeps none


def read_layers(read: Fields, layers: int, context: int | None) -> list[Layer]:
    """What each of `layers` layers keeps. Raises UsageError naming the keys whose law is not known."""
    blocks = _blocks(read)
    found = blocks or _kinds(read, layers)
    if blocks and len(blocks) != layers:
        raise _length(read, "block_configs", len(blocks), layers)
    return _shared(read, [_unbound(layer, context) for layer in found])


def _unbound(layer: Layer, context: int | None) -> Layer:
    """A window wider than the context never drops a position."""
    if layer.limit is None or context is None or layer.limit <= context:
        return layer
    wider: Keeps = "full+state" if layer.keeps == "windowed+state" else "full"
    return Layer(wider, None, layer.kv_heads, layer.shares)


def _kinds(read: Fields, layers: int) -> list[Layer]:
    kinds = _listed(read, layers) or _patterned(read, layers) or _with_states(read, layers)
    if kinds is None:
        return _windowed(read, layers)
    window = _window(read)
    chunk = read.count("attention_chunk_size")
    made = []
    for i, kind in enumerate(kinds):
        keeps = kind
        limit = chunk if keeps == "chunked" else None
        if keeps.startswith("windowed") and window:
            limit = window[i % len(window)]
        if limit is None and keeps == "windowed" and read.flag("use_sliding_window") is False:
            keeps = "full"
        elif limit is None and keeps not in ("full", "state", "full+state", "nothing"):
            raise read.missing("attention_chunk_size" if keeps == "chunked" else "window")
        made.append(Layer(keeps, limit))
    return made


def _listed(read: Fields, layers: int) -> list[Keeps] | None:
    """Kinds from a list of words, one for each layer (or a pattern that repeats, for `block_types`)."""
    key = next((key for key in LISTS if read.part.get(key) is not None), None)
    if key is None:
        return None
    words = list(read.words(key) or [])
    for i in read.numbers("cross_attention_layers") or []:
        if i < len(words):
            words[i] = "no_op"  # reads the image, keeps nothing of the conversation
    if key == "block_types" and words:  # RecurrentGemma: a pattern, and its attention is local
        words = ["local" if word == "attention" else word for word in words] * (layers // len(words) + 1)
        words = words[:layers]
    extra = read.count("num_nextn_predict_layers", least=0) or 0
    if len(words) == layers + extra:
        words = words[:layers]
    if len(words) != layers:
        raise _length(read, key, len(words), layers)
    for word in words:
        if word not in WORDS:
            raise read.wrong(
                key, f"{shown(word)} in {len(words)} layers",
                f"what such a layer keeps is not known; known are {', '.join(w for w in WORDS if len(w) > 3)}",
            )  # fmt: skip
    return [WORDS[word] for word in words]


def _patterned(read: Fields, layers: int) -> list[Keeps] | None:
    """Kinds from the patterns by which families say where attention stands."""
    part = read.part
    if (crossing := read.numbers("cross_attention_layers")) is not None:
        return ["nothing" if i in crossing else "full" for i in range(layers)]
    if isinstance(pattern := part.get("hybrid_override_pattern"), str):
        if len(pattern) != layers or set(pattern) - {"M", "*", "-", "E"}:
            raise read.wrong("hybrid_override_pattern", shown(pattern), f"{layers} letters of M, *, - and E")
        return [WORDS[letter] for letter in pattern]
    attends = _attending(read, layers)
    if attends is not None:
        return ["full" if i in attends else "state" for i in range(layers)]
    if (listed := part.get("hybrid_layer_pattern")) is not None:  # MiMo-V2: 1 is a window
        flags = read.counts("hybrid_layer_pattern", layers) if isinstance(listed, list) else None
        if flags is None or set(flags) - {0, 1}:
            raise read.wrong("hybrid_layer_pattern", shown(listed), f"it must be {layers} zeros and ones")
        return ["windowed" if flag else "full" for flag in flags]
    if part.get("attention_chunk_size") is not None:
        rotary = read.counts("no_rope_layers", layers) if part.get("no_rope_layers") else None
        every = read.count("no_rope_layer_interval") or 4  # Llama 4: layers without rotary attend to all
        return [
            "chunked" if (rotary[i] if rotary else (i + 1) % every) else "full" for i in range(layers)
        ]  # fmt: skip
    return None


def _with_states(read: Fields, layers: int) -> list[Keeps] | None:
    """Files with the sizes of a Mamba state and no word on which layers have one."""
    if read.text("model_type").startswith("falcon_h1"):
        return ["full+state"] * layers
    if read.part.get("num_attention_heads") is None and read.part.get("conv_kernel") is not None:
        return ["state"] * layers  # Mamba: no attention at all
    keys = [key for key in read.part if str(key).startswith(("mamba_d", "mamba_n", "ssm_state"))]
    if not keys:
        return None
    if "attn_layer_indices" in read.part:  # Bamba: null means none
        return ["state"] * layers
    raise read.unknown(keys[:3], "no key says which layers attend and which keep a state")


def _attending(read: Fields, layers: int) -> set[int] | None:
    """Which layers attend, in files of hybrid models that list or space them."""
    for key in ("full_attn_idxs", "attn_layer_indices", "attention_layers_idx"):
        if (listed := read.numbers(key)) is not None:
            return set(listed)
    linear = read.inner("linear_attn_config")
    if linear is not None and (listed := linear.numbers("full_attn_layers")) is not None:
        return {index - 1 for index in listed}  # counted from 1
    if (types := read.numbers("attn_type_list")) is not None:
        return {i for i, kind in enumerate(types) if kind == 1}
    if (every := read.count("attn_layer_period")) is not None:
        offset = read.count("attn_layer_offset", least=0) or 0
        return {i for i in range(layers) if i % every == offset % every}
    for key in ("full_attention_interval", "layer_group_size"):
        if (every := read.count(key)) is not None:
            return {i for i in range(layers) if (i + 1) % every == 0}
    return None


def _windowed(read: Fields, layers: int) -> list[Layer]:
    """Layers of a file that names a window, or none, and no kinds."""
    window = _window(read)
    limits = [window[i % len(window)] for i in range(layers)] if window else [None] * layers
    if not any(limits):
        return [Layer("full")] * layers
    full = _attends_to_all(read, layers)
    return [
        Layer("full") if i in full or limit is None else Layer("windowed", limit)
        for i, limit in enumerate(limits)
    ]


def _attends_to_all(read: Fields, layers: int) -> set[int]:
    """Layers without the window. Raises UsageError if the file does not say and the family is one that mixes."""
    kind = read.text("model_type")
    if isinstance(pattern := read.part.get("sliding_window_pattern"), str):
        if not pattern or set(pattern) - {"L", "G"}:
            raise read.wrong("sliding_window_pattern", shown(pattern), "letters L and G, or a number")
        return {i for i in range(layers) if pattern[i % len(pattern)] == "G"}
    for key in ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"):
        if (every := read.count(key)) is not None:
            return {i for i in range(layers) if (i + 1) % every == 0}
    if (types := read.part.get("attention_types")) is not None:
        return _gpt_neo(read, types, layers)
    if (first := read.count("max_window_layers", least=0)) is not None and not read.flag(
        "use_sliding_window"
    ):
        return set(range(layers))
    if first is not None:
        return set(range(min(first, layers)))
    if kind in WINDOW_EVERY:
        return {i for i in range(layers) if (i + 1) % WINDOW_EVERY[kind] == 0}
    if kind.startswith(WINDOW_NOWHERE) and not read.flag("use_sliding_window"):
        return set(range(layers))
    if kind.startswith(WINDOW_NOWHERE):
        raise read.missing("max_window_layers")  # layers from there on have the window
    if kind.startswith(NOT_ALL_LAYERS):
        key = read.key("window") or "sliding_window"
        raise read.unknown([key], f"{kind} attends to all in some layers; no key says in which")
    return set()


def _gpt_neo(read: Fields, types: object, layers: int) -> set[int]:
    """[[["global", "local"], 12]]: a pattern and how often."""
    try:
        words = [word for pattern, times in types for _ in range(min(times, layers)) for word in pattern]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        words = []
    if len(words) != layers or set(words) - {"global", "local"}:
        raise read.wrong("attention_types", shown(types), f"patterns of global and local for {layers} layers")
    return {i for i, word in enumerate(words) if word == "global"}


def _window(read: Fields) -> list[int | None]:
    """The window as a pattern over layers; empty if the file has none or turns it off."""
    key = read.key("window")
    if key is None or read.flag("use_sliding_window") is False:
        return []
    if (
        key == "window_size"
        and read.part.get("attention_types") is None
        and read.text("model_type") != "mistral"
    ):
        return []  # in other families a width of something else
    value = read.part[key]
    if isinstance(value, list):  # Mistral's params.json: a pattern that repeats
        each = [None if one is None else Fields({key: one}, read.where).count(key) for one in value]
        if not each or len(each) > 1000:
            raise read.wrong(key, shown(value), "a number, or a list of numbers that repeats over the layers")
        return each
    return [read.count("window", least=-1) or None] if value not in (0, -1) else []


def _blocks(read: Fields) -> list[Layer] | None:
    """`block_configs` of pruned models (DeciLM): attention of its own, or none, in each layer."""
    blocks = read.part.get("block_configs")
    if blocks is None:
        return None
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise read.wrong("block_configs", shown(blocks), "it must be a list of groups of keys")
    heads = read.need("heads")
    made = []
    for i, block in enumerate(blocks):
        attention = Fields(block, f"{read.where}: block_configs[{i}]").inner("attention")
        if attention is None or attention.flag("no_op") or attention.flag("replace_with_linear"):
            made.append(Layer("nothing"))
            continue
        group = attention.count("n_heads_in_group")
        own = attention.count("num_key_value_heads") or (heads // group if group else None)
        if own == 0:
            raise attention.wrong("n_heads_in_group", str(group), f"there are {heads} heads")
        window = attention.count("window_length")
        sinks = attention.count("num_sink_tokens", least=0) or 0
        made.append(Layer("windowed", window + sinks, own) if window else Layer("full", None, own))
    return made


def _shared(read: Fields, layers: list[Layer]) -> list[Layer]:
    """Mark the layers that read the cache of another one."""
    last = read.count("num_kv_shared_layers", least=0) or 0
    if last >= len(layers):
        raise read.wrong("num_kv_shared_layers", str(last), f"there are {len(layers)} layers")
    every = (read.count("cla_share_factor") or 1) if read.flag("use_cla") else 1
    shares = [i >= len(layers) - last or bool(i % every) for i in range(len(layers))]
    return [
        Layer(layer.keeps, layer.limit, layer.kv_heads, shares=True)
        if own and layer.keeps != "nothing"
        else layer
        for layer, own in zip(layers, shares, strict=True)
    ]


def _length(read: Fields, key: str, found: int, layers: int) -> Exception:
    stated = next((name for name in ALIASES["layers"] if name in read.part), "num_hidden_layers")
    return read.wrong(key, f"a list of {found}", f"{stated} says {layers} layers")
