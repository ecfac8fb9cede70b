"""A small Moshi of `transformers`, its profile here, and its weights under the authors' names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import MimiConfig, MimiModel, MoshiConfig, MoshiForConditionalGeneration

from metronome_cli.config.frame import Frame, FrameTokens, TokensOut
from metronome_cli.config.model_shape import ModelShape
from metronome_cli.config.profile import Profile
from metronome_cli.models.mimi import MimiShape

HIDDEN, HEADS, LAYERS, MLP, TEXT = 48, 4, 2, 40, 61
CODES, BOOKS, LEVELS = 32, 4, 6
DEPTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 56}
CODEC: dict[str, Any] = {
    "num_filters": 4,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "codebook_size": CODES,
    "codebook_dim": 12,
    "vector_quantization_hidden_dimension": 12,
    "num_quantizers": LEVELS,
    "upsample_groups": 32,
    "sliding_window": 11,
}
MIMI = MimiShape(
    filters=4,
    hidden=32,
    heads=4,
    layers=2,
    mlp=48,
    codebook_size=CODES,
    codebook_dim=12,
    stored_codebooks=LEVELS,
    context=11,
)
OPTIONS: dict[str, Any] = {
    "spoken": BOOKS,
    "heard": BOOKS,
    "audio_vocab": CODES,
    "depth_hidden": 32,
    "depth_layers": 2,
    "depth_heads": 2,
    "depth_mlp": 28,
    "mimi_filters": 4,
    "mimi_hidden": 32,
    "mimi_heads": 4,
    "mimi_layers": 2,
    "mimi_mlp": 48,
    "mimi_codebook_size": CODES,
    "mimi_codebook_dim": 12,
    "mimi_stored_codebooks": LEVELS,
    "mimi_context": 11,
}
GREEDY = {"text_temperature": 0.0, "audio_temperature": 0.0}


def profile(policy: str = "ring(64)", **changes: Any) -> Profile:
    """The profile of that model; `changes` to its options."""
    return Profile(
        name="moshi-case",
        title="a small Moshi",
        adapter="moshi",
        frame=Frame(period="80ms", sample_rate=24_000),
        tokens=FrameTokens(prefill=1, decode=TokensOut(listening=1, speaking=1), fused=True),
        shape=ModelShape(
            layers=LAYERS, heads=HEADS, kv_heads=HEADS, head_dim=HIDDEN // HEADS, hidden_size=HIDDEN,
            intermediate_size=MLP,
            vocab_size=TEXT, context_length=64,
        ),
        policy=policy,
        adapter_options={**OPTIONS, **changes},
    )  # fmt: skip


@torch.no_grad()
def settle(module: nn.Module, seed: int = 0) -> None:
    """Values under which no layer is idle and nothing explodes; the default initialisation has neither."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in module.state_dict().items():
        if "initialized" in name or not value.is_floating_point():
            continue
        if "cluster_usage" in name:
            value.uniform_(0.5, 2.0, generator=generator)
        elif "embed_sum" in name:
            value.normal_(0.0, 1.0, generator=generator)
        elif value.ndim == 1:
            low, high = (-0.1, 0.1) if "bias" in name else (0.4, 1.2)
            value.uniform_(low, high, generator=generator)
        else:
            fan_in = value.shape[0] * 2 if "decoder_seanet" in name else value[0].numel()
            if "depth_decoder" in name and value.ndim == 3:
                fan_in = value.shape[-1]
            value.normal_(0.0, 1.2 * fan_in**-0.5, generator=generator)


def mimi() -> MimiModel:
    """The codec of `transformers`."""
    model = MimiModel(MimiConfig(**CODEC)).eval()
    settle(model)
    return model


def moshi() -> MoshiForConditionalGeneration:
    """The whole model of `transformers`."""
    config = MoshiConfig(
        vocab_size=TEXT,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        ffn_dim=2 * MLP,
        num_codebooks=BOOKS,
        max_position_embeddings=64,
        sliding_window=64,
        audio_encoder_config={"model_type": "mimi", **CODEC},
        depth_decoder_config=dict(DEPTH),
    )
    model = MoshiForConditionalGeneration(config).eval()
    settle(model)
    return model


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """Rows of a query or key matrix from the half rotary layout to the interleaved one."""
    rows, width = weight.shape
    return weight.view(heads, 2, rows // heads // 2, width).transpose(1, 2).reshape(rows, width)


def kyutai_mimi(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A `MimiModel`'s tensors under the authors' names."""
    out: dict[str, Tensor] = {}
    for name, value in state.items():
        if re.search(r"self_attn\.[qkv]_proj", name):
            continue
        out[_kyutai_codec_name(name)] = value.clone()
    for half in ("encoder", "decoder"):
        for layer in range(MIMI.layers):
            parts = [
                state[f"{half}.{half}_transformer.layers.{layer}.self_attn.{part}_proj.weight"]
                for part in "qkv"
            ]
            parts[:2] = [interleaved(part, MIMI.heads) for part in parts[:2]]
            name = f"{half}_transformer.transformer.layers.{layer}.self_attn.in_proj_weight"
            out[name] = torch.cat(parts)
    return out


def _kyutai_codec_name(name: str) -> str:
    transposed = re.fullmatch(r"decoder\.decoder_seanet\.layers\.(2|5|8|11)\.conv\.(\w+)", name)
    if transposed:
        return f"decoder.model.{transposed[1]}.convtr.convtr.{transposed[2]}"
    for pattern, text in (
        (r"(encoder|decoder)\.\1_seanet\.layers\.(.*)\.conv\.(\w+)$", r"\1.model.\2.conv.conv.\3"),
        (r"(encoder|decoder)\.\1_transformer\.", r"\1_transformer.transformer."),
        (r"encoder\.downsample\.conv", "downsample.conv.conv.conv"),
        (r"decoder\.upsample\.conv", "upsample.convtr.convtr.convtr"),
        (r"o_proj", "out_proj"),
        (r"mlp\.fc", "linear"),
        (r"input_layernorm", "norm1"),
        (r"post_attention_layernorm", "norm2"),
        (r"self_attn_layer_scale", "layer_scale_1"),
        (r"mlp_layer_scale", "layer_scale_2"),
        (r"semantic_residual_vector_quantizer", "rvq_first"),
        (r"acoustic_residual_vector_quantizer", "rvq_rest"),
        (r"layers\.(\d+)\.codebook\.initialized", r"vq.layers.\1._codebook._initialized"),
        (r"layers\.(\d+)\.codebook\.embed_sum", r"vq.layers.\1._codebook.embedding_sum"),
        (r"layers\.(\d+)\.codebook\.cluster_usage", r"vq.layers.\1._codebook.cluster_usage"),
    ):
        name = re.sub(pattern, text, name)
    return name


def kyutai_moshi(model: MoshiForConditionalGeneration) -> dict[str, Tensor]:
    """The language model's tensors under the authors' names."""
    state = model.state_dict()
    out = {
        "text_emb.weight": state["decoder.model.embed_tokens.weight"],
        "text_linear.weight": state["decoder.lm_head.weight"],
        "out_norm.alpha": state["decoder.model.norm.weight"].view(1, 1, -1),
        "depformer_text_emb.weight": state["depth_decoder.text_embed_tokens.weight"],
    }
    for book in range(2 * BOOKS):
        out[f"emb.{book}.weight"] = state[f"embed_tokens.{book}.weight"]
    for book in range(BOOKS - 1):
        out[f"depformer_emb.{book}.weight"] = state[f"depth_decoder.embed_tokens.{book}.weight"]
    for step in range(BOOKS):
        out[f"depformer_in.{step}.weight"] = state["depth_decoder.input_projections.weight"][step]
        out[f"linears.{step}.weight"] = state["depth_decoder.lm_heads.weight"][step]
    for layer in range(LAYERS):
        out |= _kyutai_temporal_layer(state, layer)
    for layer in range(DEPTH["num_hidden_layers"]):
        out |= _kyutai_depth_layer(state, layer)
    return {name: value.clone() for name, value in out.items()}


def _kyutai_temporal_layer(state: dict[str, Tensor], layer: int) -> dict[str, Tensor]:
    its, at = f"decoder.model.layers.{layer}", f"transformer.layers.{layer}"
    query, key, value = (state[f"{its}.self_attn.{part}_proj.linear.weight"] for part in "qkv")
    return {
        f"{at}.norm1.alpha": state[f"{its}.input_layernorm.weight"].view(1, 1, -1),
        f"{at}.norm2.alpha": state[f"{its}.post_attention_layernorm.weight"].view(1, 1, -1),
        f"{at}.self_attn.in_proj_weight": torch.cat(
            [interleaved(query, HEADS), interleaved(key, HEADS), value]
        ),
        f"{at}.self_attn.out_proj.weight": state[f"{its}.self_attn.o_proj.linear.weight"],
        f"{at}.gating.linear_in.weight": state[f"{its}.mlp.fc1.weight"],
        f"{at}.gating.linear_out.weight": state[f"{its}.mlp.fc2.weight"],
    }


def _kyutai_depth_layer(state: dict[str, Tensor], layer: int) -> dict[str, Tensor]:
    its, at = f"depth_decoder.layers.{layer}", f"depformer.layers.{layer}"
    parts = [state[f"{its}.self_attn.{part}_proj.linear.weight"] for part in "qkv"]
    out = {
        f"{at}.norm1.alpha": state[f"{its}.input_layernorm.weight"].view(1, 1, -1),
        f"{at}.norm2.alpha": state[f"{its}.post_attention_layernorm.weight"].view(1, 1, -1),
        f"{at}.self_attn.in_proj_weight": torch.cat(parts, dim=1).flatten(0, 1),
        f"{at}.self_attn.out_proj.weight": state[f"{its}.self_attn.o_proj.linear.weight"].flatten(0, 1),
    }
    for step in range(BOOKS):
        out[f"{at}.gating.{step}.linear_in.weight"] = state[f"{its}.mlp.fc1.weight"][step]
        out[f"{at}.gating.{step}.linear_out.weight"] = state[f"{its}.mlp.fc2.weight"][step]
    return out


def save_kyutai(model: MoshiForConditionalGeneration, root: Path) -> Path:
    """The authors' two files."""
    save_file(kyutai_moshi(model), root / "model.safetensors")
    codec = kyutai_mimi(model.audio_encoder.state_dict())
    save_file(
        {name: value.contiguous() for name, value in codec.items()}, root / "tokenizer-mimi.safetensors"
    )
    return root
