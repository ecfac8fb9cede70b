"""Tiny MiniCPM-o models assembled from `transformers`' parts, their checkpoints, and profiles that fit
them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import nn

from metronome_cli.config.profile import Profile

Version = Literal["2.6", "4.5"]
VERSIONS: tuple[Version, Version] = ("2.6", "4.5")
VOCAB, HIDDEN, LAYERS = 300, 64, 2
ENCODER = {"mels": 16, "encoder_layers": 2, "encoder_width": 32, "encoder_heads": 4, "encoder_mlp": 64}
CODES, TEXT, TALKER_HIDDEN = 40, 120, 32


def profile(version: Version, **changes: Any) -> Profile:
    talker = {
        "talker_layers": 2, "talker_heads": 4, "talker_head_dim": 8, "talker_hidden": TALKER_HIDDEN, "talker_mlp": 48,
        "talker_codes": CODES, "talker_text": TEXT,
    }  # fmt: skip
    options: dict[str, Any] = {"version": version, **ENCODER, **talker, **changes.pop("options", {})}
    out = {"listening": 1, "speaking": 6} if version == "4.5" else {"listening": 0, "speaking": 6}
    data = {
        "name": "mini-tiny",
        "title": "Tiny",
        "adapter": "minicpm-o",
        "adapter_options": options,
        "frame": {"period": "1s", "sample_rate": 16_000},
        "tokens": {"prefill": 12 if version == "4.5" else 27, "decode": out},
        "shape": {
            "layers": LAYERS, "heads": 4, "kv_heads": 2, "head_dim": 16, "hidden_size": HIDDEN,
            "intermediate_size": 96, "vocab_size": VOCAB,
            "dtype": "float32", "context_length": 4096, "rope_theta": 1_000_000.0,
        },
        "kv_pool": {"blocks": 256},
        "policy": "unbounded",
        "max_batch_size": 4,
        **changes,
    }  # fmt: skip
    return Profile.model_validate(data)


@dataclass(slots=True)
class Parts:
    """The reference's parts, by their prefix in a checkpoint."""

    llm: Any
    apm: Any
    projection: nn.Module
    tts: nn.Module
    version: Version

    def state(self) -> dict[str, torch.Tensor]:
        """Tensors under the authors' names, vision and vocoder included."""
        parts = {"llm": self.llm, "apm": self.apm, "audio_projection_layer": self.projection, "tts": self.tts}
        out = {
            f"{prefix}.{name}": v for prefix, part in parts.items() for name, v in part.state_dict().items()
        }
        return {**out, "vpm.encoder.weight": torch.zeros(2), "resampler.query": torch.zeros(2)}

    def save(self, folder: Path) -> Path:
        config = {"model_type": "minicpmo", "tie_word_embeddings": False}
        config |= {"version": "4.5"} if self.version == "4.5" else {}
        (folder / "config.json").write_text(json.dumps(config))
        save_file({k: v.contiguous().clone() for k, v in self.state().items()}, folder / "model.safetensors")
        return folder


def _projector(wide: int, out: int) -> nn.Module:
    made = nn.Module()
    made.linear1, made.linear2 = nn.Linear(wide, out), nn.Linear(out, out)
    return made


def _language(version: Version) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    sizes: dict[str, Any] = {
        "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 96, "num_hidden_layers": LAYERS,
        "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    }  # fmt: skip
    if version == "2.6":
        return Qwen2ForCausalLM(Qwen2Config(**sizes))
    return Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=16))


def _talker(version: Version) -> nn.Module:
    from transformers import LlamaConfig, LlamaModel

    groups = 4 if version == "2.6" else 1
    made = nn.Module()
    made.model = LlamaModel(
        LlamaConfig(vocab_size=8, hidden_size=TALKER_HIDDEN, intermediate_size=48, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=4, initializer_range=0.2)
    )  # fmt: skip
    made.emb_text = nn.Embedding(TEXT, TALKER_HIDDEN)
    made.emb_code = nn.ModuleList(nn.Embedding(CODES, TALKER_HIDDEN) for _ in range(groups))
    heads = (nn.Linear(TALKER_HIDDEN, CODES, bias=False) for _ in range(groups))
    made.head_code = nn.ModuleList(nn.utils.parametrizations.weight_norm(head) for head in heads)
    setattr(
        made, "projector" if version == "2.6" else "projector_semantic", _projector(HIDDEN, TALKER_HIDDEN)
    )
    if version == "4.5":
        made.projector_spk = _projector(HIDDEN, TALKER_HIDDEN)
    return made


def parts(version: Version) -> Parts:
    """A whole model without vision and vocoder, as small as it goes."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    torch.manual_seed(21)
    whisper = WhisperConfig(
        num_mel_bins=16, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64, d_model=32, init_std=0.2
    )  # fmt: skip
    made = Parts(
        llm=_language(version).eval(),
        apm=WhisperEncoder(whisper).eval(),
        projection=_projector(32, HIDDEN),
        tts=_talker(version).eval(),
        version=version,
    )
    for head in made.tts.head_code:  # type: ignore[union-attr]
        head.parametrizations.weight.original0.data.uniform_(0.5, 2.0)
    return made
