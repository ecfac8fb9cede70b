"""Tiny Qwen-Omni models of `transformers`, their checkpoints, and the profiles that fit them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from metronome_cli.config.profile import Profile
from metronome_cli.models.qwen_omni.tower import Family

FAMILIES: tuple[Family, Family] = ("qwen2.5", "qwen3")
VOCAB, HIDDEN, LAYERS = 384, 64, 2
SIZES = {"mels": 16, "tower_layers": 2, "tower_width": 32, "tower_heads": 4, "tower_mlp": 64}
TALKER = {
    "talker_layers": 2, "talker_heads": 4, "talker_kv_heads": 2, "talker_head_dim": 8, "talker_hidden": 32,
    "talker_mlp": 48, "talker_vocab": 256,
}  # fmt: skip
MIXTURE = {
    "tower_conv": 8, "experts": 6, "experts_per_token": 2, "expert_mlp": 24, "talker_experts": 6,
    "talker_experts_per_token": 2, "talker_expert_mlp": 16, "talker_shared_mlp": 24, "code_groups": 4,
    "predictor_layers": 2, "predictor_heads": 4, "predictor_kv_heads": 2, "predictor_head_dim": 8,
    "predictor_hidden": 32, "predictor_mlp": 48, "predictor_vocab": 64,
}  # fmt: skip


def profile(family: Family, **changes: Any) -> Profile:
    options: dict[str, Any] = {"family": family, **SIZES, **TALKER, **(MIXTURE if family == "qwen3" else {})}
    options |= changes.pop("options", {})
    data = {
        "name": "omni-tiny",
        "title": "Tiny",
        "adapter": "qwen-omni",
        "adapter_options": options,
        "frame": {"period": "2s", "sample_rate": 16_000},
        "tokens": {"prefill": 52 if family == "qwen2.5" else 28, "decode": {"listening": 1, "speaking": 5}},
        "shape": {
            "layers": LAYERS, "heads": 4, "kv_heads": 2, "head_dim": 16, "hidden_size": HIDDEN, "intermediate_size": 96,
            "vocab_size": VOCAB, "dtype": "float32", "context_length": 4096, "rope_theta": 1_000_000.0,
        },
        "kv_pool": {"blocks": 256},
        "policy": "unbounded",
        "max_batch_size": 4,
        **changes,
    }  # fmt: skip
    return Profile.model_validate(data)


def _text(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 96, "num_hidden_layers": LAYERS,
        "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2,
        "tie_word_embeddings": False, **more,
    }  # fmt: skip


def _audio() -> dict[str, Any]:
    return {
        "num_mel_bins": 16, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "d_model": 32, "output_dim": HIDDEN, "initializer_range": 0.2,
    }  # fmt: skip


def _vision() -> dict[str, Any]:
    return {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": HIDDEN}


def _talker_text(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.2, **more,
    }  # fmt: skip


def _rope(sections: list[int]) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": sections}


def model25() -> Any:
    """A whole Qwen2.5-Omni without its vocoder, vision included, as small as it goes."""
    from transformers.models.qwen2_5_omni import configuration_qwen2_5_omni as c
    from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni as lib

    thinker = c.Qwen2_5OmniThinkerConfig(
        audio_config=_audio(),
        vision_config=_vision(),
        text_config=_text(rope_parameters=_rope([2, 3, 3])),
        audio_token_index=VOCAB - 1,
    )  # fmt: skip
    talker = c.Qwen2_5OmniTalkerConfig(
        **_talker_text(rope_parameters=_rope([1, 1, 2])), embedding_size=HIDDEN, tts_codec_pad_token_id=100,
        tts_codec_start_token_id=101,
    )  # fmt: skip
    model = torch.nn.Module()
    model.thinker = lib.Qwen2_5OmniThinkerForConditionalGeneration(thinker)
    model.talker = lib.Qwen2_5OmniTalkerForConditionalGeneration(talker)
    return model.eval()


def model3() -> Any:
    """A whole Qwen3-Omni without its vocoder."""
    from transformers.models.qwen3_omni_moe import configuration_qwen3_omni_moe as c
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as lib

    experts = {"num_experts": 6, "num_experts_per_tok": 2}
    thinker = c.Qwen3OmniMoeThinkerConfig(
        audio_config={**_audio(), "downsample_hidden_size": 8},
        vision_config={**_vision(), "deepstack_visual_indexes": []},
        text_config=_text(head_dim=16, moe_intermediate_size=24, rope_parameters=_rope([4, 2, 2]), **experts),
        audio_token_id=VOCAB - 1,
    )  # fmt: skip
    talker = c.Qwen3OmniMoeTalkerConfig(
        text_config=_talker_text(moe_intermediate_size=16, shared_expert_intermediate_size=24,
                                 rope_parameters=_rope([2, 1, 1]), **experts),
        code_predictor_config={**_talker_text(), "vocab_size": 64, "num_code_groups": 4,
                               "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}},
        num_code_groups=4, thinker_hidden_size=HIDDEN, spatial_merge_size=2,
    )  # fmt: skip
    model = torch.nn.Module()
    model.thinker = lib.Qwen3OmniMoeThinkerForConditionalGeneration(thinker)
    model.talker = lib.Qwen3OmniMoeTalkerForConditionalGeneration(talker)
    for name, values in model.talker.named_parameters():
        if ".experts." in name:  # which the library leaves as the memory was
            torch.nn.init.normal_(values, std=0.2)
    return model.eval()


def model(family: Family) -> Any:
    torch.manual_seed(11)
    return model25() if family == "qwen2.5" else model3()


def authors_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """From `transformers`' names to the published ones: flat thinker, experts one by one."""
    out: dict[str, torch.Tensor] = {}
    for key, value in state.items():
        name = key
        for inner in ("language_model", "audio_tower", "visual"):
            outer = "model." if inner == "language_model" else f"{inner}."
            name = name.replace(f"thinker.model.{inner}.", f"thinker.{outer}")
        stacked = re.fullmatch(r"(.*\.experts)\.(gate_up|down)_proj", name)
        if stacked is None:
            out[name] = value
            continue
        for expert, matrix in enumerate(value):
            parts = (
                dict(zip(("gate", "up"), matrix.chunk(2), strict=True))
                if stacked[2] == "gate_up"
                else {"down": matrix}
            )
            out |= {f"{stacked[1]}.{expert}.{part}_proj.weight": weight for part, weight in parts.items()}
    return out


def save(reference: Any, folder: Path, names: str = "authors") -> Path:
    """A checkpoint directory, under the authors' names or those of `transformers`."""
    state = dict(reference.state_dict())
    state = authors_names(state) if names == "authors" else state
    save_file(
        {name: value.contiguous().clone() for name, value in state.items()}, folder / "model.safetensors"
    )
    return folder
