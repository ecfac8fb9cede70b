"""Sizes of a Qwen-Omni: the published ones, over which a profile's `adapter_options` may put others.

The thinker's own are the profile's `shape`. Sources: the published configuration of Qwen2.5-Omni-7B and of
Qwen3-Omni-30B-A3B-Instruct. The talker of Qwen2.5-Omni-3B was not found; the 7B's stands in for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metronome_cli.config.model_shape import ModelShape
from metronome_cli.config.profile import Profile
from metronome_cli.models.adapter_options import AdapterOptions, OptionValue
from metronome_cli.models.qwen_omni.tower import Family, TowerShape
from metronome_cli.models.weights.experts import ExpertShape

_COMMON: Mapping[str, OptionValue] = {
    "family": "qwen2.5",
    "talker": False,
    "temperature": 0.0,
    "mels": 128,
    "tower_layers": 32,
    "tower_width": 1280,
    "tower_heads": 20,
    "tower_mlp": 5120,
}
_DEFAULTS: Mapping[Family, Mapping[str, OptionValue]] = {
    "qwen2.5": {
        **_COMMON,
        "talker_layers": 24,
        "talker_heads": 12,
        "talker_kv_heads": 4,
        "talker_head_dim": 128,
        "talker_hidden": 896,
        "talker_mlp": 18_944,
        "talker_vocab": 8448,
    },
    "qwen3": {
        **_COMMON,
        "family": "qwen3",
        "tower_conv": 480,
        "experts": 128,
        "experts_per_token": 8,
        "expert_mlp": 768,
        "talker_layers": 20,
        "talker_heads": 16,
        "talker_kv_heads": 2,
        "talker_head_dim": 128,
        "talker_hidden": 1024,
        "talker_mlp": 2048,
        "talker_vocab": 3072,
        "talker_experts": 128,
        "talker_experts_per_token": 6,
        "talker_expert_mlp": 384,
        "talker_shared_mlp": 768,
        "code_groups": 16,
        "predictor_layers": 5,
        "predictor_heads": 16,
        "predictor_kv_heads": 8,
        "predictor_head_dim": 128,
        "predictor_hidden": 1024,
        "predictor_mlp": 3072,
        "predictor_vocab": 2048,
    },
}
CODES_PER_S = {"qwen2.5": 50.0, "qwen3": 12.5}
TALKER_CONTEXT = {"qwen2.5": 32_768, "qwen3": 65_536}


@dataclass(frozen=True, slots=True)
class QwenOmniShape:
    """Everything but the thinker's decoder. `predictor` and `talker_experts`: Qwen3 alone has them."""

    family: Family
    tower: TowerShape
    experts: ExpertShape | None
    temperature: float
    talker: ModelShape | None
    talker_experts: ExpertShape | None = None
    predictor: ModelShape | None = None
    groups: int = 1

    @classmethod
    def of(cls, profile: Profile) -> QwenOmniShape:
        """Raises UsageError for an unknown option or family."""
        wanted = profile.adapter_options.get("family", "qwen2.5")
        family: Family = "qwen3" if wanted == "qwen3" else "qwen2.5"
        options = AdapterOptions(profile, _DEFAULTS[family])
        options.choice("family", *_DEFAULTS)
        mixture = family == "qwen3"
        speaks = options.flag("talker")
        return cls(
            family=family,
            tower=_tower(options, profile.shape.hidden_size, mixture),
            experts=_experts(options, "experts", "expert_mlp") if mixture else None,
            temperature=options.real("temperature"),
            talker=_decoder(options, "talker", profile.shape, TALKER_CONTEXT[family]) if speaks else None,
            talker_experts=_talker_experts(options) if speaks and mixture else None,
            predictor=_decoder(options, "predictor", profile.shape, 32_768) if speaks and mixture else None,
            groups=options.number("code_groups") if mixture else 1,
        )


def _tower(options: AdapterOptions, out: int, conv: bool) -> TowerShape:
    return TowerShape(
        mels=options.number("mels"),
        layers=options.number("tower_layers"),
        width=options.number("tower_width"),
        heads=options.number("tower_heads"),
        mlp=options.number("tower_mlp"),
        out=out,
        conv=options.number("tower_conv") if conv else 0,
    )


def _experts(options: AdapterOptions, stem: str, width: str) -> ExpertShape:
    return ExpertShape(options.number(stem), options.number(f"{stem}_per_token"), options.number(width))


def _talker_experts(options: AdapterOptions) -> ExpertShape:
    return ExpertShape(
        options.number("talker_experts"),
        options.number("talker_experts_per_token"),
        options.number("talker_expert_mlp"),
        shared=options.number("talker_shared_mlp"),
        normalise=False,
    )


def _decoder(options: AdapterOptions, stem: str, thinker: ModelShape, context: int) -> ModelShape:
    return ModelShape(
        layers=options.number(f"{stem}_layers"),
        heads=options.number(f"{stem}_heads"),
        kv_heads=options.number(f"{stem}_kv_heads"),
        head_dim=options.number(f"{stem}_head_dim"),
        hidden_size=options.number(f"{stem}_hidden"),
        intermediate_size=options.number(f"{stem}_mlp"),
        vocab_size=options.number(f"{stem}_vocab"),
        dtype=thinker.dtype,
        context_length=context,
        rope_theta=1_000_000.0,
    )
