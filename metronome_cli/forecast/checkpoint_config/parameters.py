"""Weights of a decoder, counted from its configuration: embeddings, attention or state, MLP or experts.

Norms, biases and small gates are left out (under 1 % of any decoder tried). Sizes of towers and codecs are not
counted. Total is what is resident; active is what one token passes through.

    attention  hidden x (2 heads + 2 KV heads) x head size; latent attention by its ranks
    MLP        3 x hidden x width with a gate, 2 without; 1.5 where the width counts both halves (Moshi)
    experts    each as an MLP, the router, and shared experts in every such layer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.checkpoint_config.experts import Sparse, read_sparse
from metronome_cli.forecast.checkpoint_config.fields import Fields
from metronome_cli.forecast.checkpoint_config.groups import attention_widths, latent_width
from metronome_cli.forecast.checkpoint_config.layer_kinds import Layer

UNGATED = (
    "gpt2", "gpt_neo", "gpt_neox", "gptj", "codegen", "opt", "bloom", "falcon", "mpt", "phi", "starcoder2",
    "gpt_bigcode", "persimmon", "nemotron", "nemotron_h", "whisper", "xglm", "biogpt", "apertus", "apertus1p5_text",
    "arcee", "ctrl", "nanochat", "jais2",
    "openai-gpt", "gpt_neox_japanese", "musicgen_decoder", "xlm", "bart", "mbart",
)  # fmt: skip
FUSED = ("moshi", "moshi_depth", "kyutai_speech_to_text")  # ffn_dim counts gate and up together
FOUR_TIMES = (
    "gpt2",
    "gpt_bigcode",
    "openai-gpt",
    "gpt_neox_japanese",
    "gptj",
    "bloom",
    "falcon",
    "mpt",
    "codegen",
    "gpt_neo",
    "RefinedWeb",
    "RefinedWebModel",
)
TIED = (
    "gemma",
    "cohere",
    "lfm2",
    "gpt2",
    "gpt_bigcode",
    "opt",
    "bloom",
    "falcon",
    "mpt",
    "whisper",
    "starcoder2",
)


def count_parameters(read: Fields, layers: Sequence[Layer]) -> tuple[int | None, int | None, str]:
    """Total and active parameters, or None, None and which key is missing."""
    try:
        counted = _Counter(read, layers)
        return counted.total(), counted.active(), ""
    except UsageError as error:
        return None, None, error.message.removeprefix(read.where).removeprefix(": ")


@dataclass(frozen=True, slots=True)
class _Counter:
    read: Fields
    layers: Sequence[Layer]

    def total(self) -> int:
        sparse = read_sparse(self.read, len(self.layers))
        return self._common() + sum(self._mlp(i, sparse, active=False) for i in range(len(self.layers)))

    def active(self) -> int:
        sparse = read_sparse(self.read, len(self.layers))
        return self._common() + sum(self._mlp(i, sparse, active=True) for i in range(len(self.layers)))

    def _common(self) -> int:
        mixing = sum(_attention(self.read, layer) + _state(self.read, layer) for layer in self.layers)
        per_layer = _per_layer_embeddings(self.read, len(self.layers))
        return _embeddings(self.read) + per_layer + mixing + _output_branch(self.read)

    def _mlp(self, i: int, sparse: Sparse | None, *, active: bool) -> int:
        read, layer = self.read, self.layers[i]
        if _one_mixer(read) and layer.keeps != "nothing":
            return 0
        if (blocks := read.part.get("block_configs")) is not None:
            return _block_mlp(read, blocks[i])
        if sparse is None or not sparse.here[i]:
            return _dense(read, i, len(self.layers), sparse)
        return sparse.parameters(read.need("hidden"), _gates(read), active=active)


def _output_branch(read: Fields) -> int:
    """Kimi-Audio's further layers, which make the audio output, and their own head."""
    extra = read.count("kimia_mimo_layers", least=0) or 0
    if not extra:
        return 0
    each = _attention(read, Layer("full")) + _dense(read, 0, 1, None)
    return extra * each + read.need("vocab") * read.need("hidden")


def _attention(read: Fields, layer: Layer) -> int:
    if layer.keeps in ("state", "nothing"):
        return 0
    hidden, heads = read.need("hidden"), read.need("heads")
    if read.text("model_type") == "longcat_flash":
        raise UsageError(
            f"{read.where}: layers of two attentions and experts that do nothing are not counted"
        )
    rank = latent_width(read)
    if rank is not None:
        return _latent(read, hidden, heads)
    if layer.kv_heads is not None:
        dim = read.count("head_dim") or hidden // heads
        return 2 * hidden * dim * (heads + layer.kv_heads)
    widths = attention_widths(read, heads, hidden, windowed=layer.keeps.startswith("windowed"))
    if layer.keeps.startswith("windowed"):
        heads = read.count("swa_num_attention_heads") or heads
    value_dim = widths.value // widths.kv_heads
    gates = 2 if read.flag("attn_output_gate") else 1
    own = 0 if layer.shares and read.text("model_type").startswith("gemma4") else widths.key + widths.value
    return hidden * (heads * widths.head_dim * gates + own + heads * value_dim)


def _latent(read: Fields, hidden: int, heads: int) -> int:
    rotary, plain = read.need("qk_rope_head_dim"), read.need("qk_nope_head_dim")
    value, rank, query = (
        read.need("v_head_dim"),
        read.need("kv_lora_rank"),
        read.count("q_lora_rank", least=0),
    )
    queries = query * (hidden + heads * (plain + rotary)) if query else hidden * heads * (plain + rotary)
    return queries + hidden * (rank + rotary) + rank * heads * (plain + value) + heads * value * hidden


def _state(read: Fields, layer: Layer) -> int:
    """Weights of a layer's recurrent part. Raises UsageError if its family is not known."""
    if not layer.keeps.endswith("state"):
        return 0
    if read.text("model_type").startswith("zamba"):
        raise UsageError(
            f"{read.where}: its attention layers share their weights in a way that is not counted"
        )
    hidden = read.need("hidden")
    if (keys := read.count("linear_num_key_heads")) is not None:
        k_width = keys * read.need("linear_key_head_dim")
        values = read.need("linear_num_value_heads")
        v_width = values * read.need("linear_value_head_dim")
        return hidden * (2 * k_width + 3 * v_width + 2 * values)
    if read.count("conv_L_cache") is not None or read.part.get("full_attn_idxs") is not None:
        return 4 * hidden * hidden
    if (heads := _first(read, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads")) is not None:
        inner = heads * (_first(read, "mamba_head_dim", "mamba_d_head", "mamba_headdim") or 0)
        inner = inner or (_first(read, "mamba_expand", "expand") or 2) * hidden
        state = _first(read, "mamba_d_state", "ssm_state_size", "state_size") or 0
        groups = _first(read, "mamba_n_groups", "mamba_ngroups", "mamba_num_groups", "n_groups") or 1
        return hidden * (3 * inner + 2 * groups * state + heads)
    if (size := _first(read, "mamba_d_state", "state_size")) is not None:
        inner = (_first(read, "mamba_expand", "expand") or 2) * hidden
        rank = _rank(read, hidden)
        return hidden * 3 * inner + inner * (2 * rank + 3 * size)
    raise UsageError(f"{read.where}: the sizes of its state layers' weights are not given")


def _rank(read: Fields, hidden: int) -> int:
    key = "mamba_dt_rank" if "mamba_dt_rank" in read.part else "time_step_rank"
    value = read.part.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else -(-hidden // 16)


def _first(read: Fields, *keys: str) -> int | None:
    return next((value for key in keys if (value := read.count(key)) is not None), None)


def _one_mixer(read: Fields) -> bool:
    """Nemotron-H: an MLP is a layer of its own."""
    words = read.part.get("layers_block_type") or read.part.get("layer_types") or []
    listed = isinstance(words, list) and any(
        word in ("mlp", "moe") for word in words if isinstance(word, str)
    )
    return "hybrid_override_pattern" in read.part or listed or read.text("model_type") in ("mamba", "mamba2")


def _gates(read: Fields) -> int:
    return 2 if read.text("model_type") in UNGATED else 3


def _dense(read: Fields, i: int, layers: int, sparse: Sparse | None) -> int:
    hidden, key = read.need("hidden"), read.key("mlp")
    if (native := _native_width(read, hidden)) is not None:
        return 3 * hidden * native
    if sparse is not None and (own := read.count("intermediate_size_mlp")) is not None:
        return 3 * hidden * own
    if key is not None and isinstance(read.part[key], list):
        return _gates(read) * hidden * (read.counts("mlp", layers, 1) or [0])[i]
    width = read.count("mlp")
    if width is None:
        if read.text("model_type") not in FOUR_TIMES:
            raise read.missing("mlp")
        width = 4 * hidden
    if read.text("model_type") in FUSED:
        return hidden * (width + width // 2)
    if read.flag("block_auto_adjust_ff_dim"):  # LFM2: two thirds, rounded up
        multiple = read.count("block_multiple_of") or 256
        width = -(-int(2 * width / 3 * (read.real("block_ffn_dim_multiplier") or 1)) // multiple) * multiple
    return _gates(read) * hidden * width


def _native_width(read: Fields, hidden: int) -> int | None:
    """Kyutai's own files: a gated MLP of 2/3 of the stated width, 21/8 of the model's if that is 4 times it."""
    scale = read.real("hidden_scale")
    stated = round(scale * hidden) if scale else read.count("dim_feedforward")
    if stated is None or read.key("context") != "context":
        return None
    return 21 * hidden // 8 if stated == 4 * hidden else 2 * stated // 3


def _block_mlp(read: Fields, block: object) -> int:
    """A pruned model's MLP: `ffn_mult` of 2/3 of the hidden size, rounded up to 256; or a width."""
    inner = Fields(block, read.where).inner("ffn") if isinstance(block, dict) else None
    hidden = read.need("hidden")
    if inner is None or inner.flag("no_op"):
        return 0
    if inner.flag("replace_with_linear"):
        return hidden * hidden
    width = inner.count("intermediate_size")
    if width is None:
        share = inner.real("ffn_mult")
        if share is None:
            raise inner.missing("ffn_mult")
        width = -(-int(2 * share * hidden / 3) // 256) * 256
    return 3 * hidden * width


def _embeddings(read: Fields) -> int:
    """Token embeddings and the output head; codebooks of an audio model beside the text's."""
    hidden = read.need("hidden")
    if (streams := read.count("n_q")) is not None:  # Kyutai's own files
        return hidden * (streams * (read.need("card") + 1) + 2 * read.need("vocab"))
    if read.text("model_type") == "csm":
        text = read.need("text_vocab_size")
        books = _first(read, "num_codebooks", "audio_num_codebooks") or 0
        return hidden * (text + (books + 1) * (_first(read, "vocab_size", "audio_vocab_size") or 0))
    tied = read.flag("tie_word_embeddings")
    tied = read.flag("tied_embeddings") if tied is None else tied
    tied = read.text("model_type").startswith(TIED) if tied is None else tied
    return read.need("vocab") * hidden * (1 if tied else 2)


def _per_layer_embeddings(read: Fields, layers: int) -> int:
    """Gemma 3n and 4: an embedding of each token for each layer, with its projections; Gemma 3n's extra rows."""
    width = read.count("hidden_size_per_layer_input", least=0)
    if not width:
        return 0
    hidden = read.need("hidden")
    rows = read.need("vocab_size_per_layer_input") * width * layers + hidden * width * layers * 3
    copies, low = read.count("altup_num_inputs") or 1, read.count("laurel_rank", least=0) or 0
    return rows + 2 * (copies - 1) * hidden * hidden + 2 * low * hidden * layers
