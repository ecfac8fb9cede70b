"""The names that Mimi's tensors have in the authors' file and in those of `transformers`."""

from __future__ import annotations

from metronome_cli.models.mimi.shape import MimiShape
from metronome_cli.models.weights.checkpoint import CheckpointLayout
from metronome_cli.models.weights.rules import (
    NameRule,
    TensorBuilder,
    as_is,
    concatenated,
    half_rotary_qkv,
    layout,
    squeezed,
)

IGNORED = ("*quantizer.*", "*_initialized", "*.initialized")  # levels that a model does not use


def kyutai(shape: MimiShape, prefix: str = "") -> list[CheckpointLayout]:
    """The authors' names, as in their file and as their package renames the attention matrices at load."""
    qkv = half_rotary_qkv(shape.heads)
    rules = [
        *(rule for half in ("encoder", "decoder") for rule in _convolutions(half, f"{half}.model", ".conv")),
        *(rule for half in ("encoder", "decoder") for rule in _kyutai_layers(half)),
        NameRule("downsample.weight", ("downsample.conv.conv.conv.weight",)),
        NameRule("upsample.weight", ("upsample.convtr.convtr.convtr.weight",)),
        *_branch("semantic", "quantizer.rvq_first", "vq.layers.{n}._codebook", "embedding_sum"),
        *_branch("acoustic", "quantizer.rvq_rest", "vq.layers.{n}._codebook", "embedding_sum"),
    ]
    return [layout([*_kyutai_attention(names, qkv), *rules], prefix=prefix) for names in _KYUTAI_ATTENTION]


_KYUTAI_ATTENTION = (
    ("self_attn.in_proj_weight", "self_attn.out_proj.weight"),
    ("self_attn.in_projs.0.weight", "self_attn.out_projs.0.weight"),
)


def _kyutai_attention(names: tuple[str, str], qkv: TensorBuilder) -> list[NameRule]:
    into, out = names
    rules = []
    for half in ("encoder", "decoder"):
        at, its = f"{half}_transformer.layers.{{n}}", f"{half}_transformer.transformer.layers.{{n}}"
        rules += [NameRule(f"{at}.qkv", (f"{its}.{into}",), qkv), NameRule(f"{at}.output", (f"{its}.{out}",))]
    return rules


def _kyutai_layers(half: str) -> list[NameRule]:
    at, its = f"{half}_transformer.layers.{{n}}", f"{half}_transformer.transformer.layers.{{n}}"
    return [
        NameRule(f"{at}.up", (f"{its}.linear1.weight",)),
        NameRule(f"{at}.down", (f"{its}.linear2.weight",)),
        *(
            NameRule(f"{at}.{norm}.{part}", (f"{its}.{name}.{part}",))
            for norm, name in (("attention_norm", "norm1"), ("mlp_norm", "norm2"))
            for part in ("weight", "bias")
        ),
        NameRule(f"{at}.attention_scale", (f"{its}.layer_scale_1.scale",)),
        NameRule(f"{at}.mlp_scale", (f"{its}.layer_scale_2.scale",)),
    ]


def transformers(prefix: str = "") -> list[CheckpointLayout]:
    """The names of `MimiModel`: those of published checkpoints, and the nested ones of newer releases."""
    flat = {half: (half, f"{half}_transformer") for half in ("encoder", "decoder")}
    nested = {
        half: (f"{half}.{half}_seanet", f"{half}.{half}_transformer") for half in ("encoder", "decoder")
    }
    resampling = (("downsample", "upsample"), ("encoder.downsample", "decoder.upsample"))
    return [
        layout(_transformers_rules(halves, samplers), prefix=prefix)
        for halves, samplers in zip((flat, nested), resampling, strict=True)
    ]


def _transformers_rules(halves: dict[str, tuple[str, str]], samplers: tuple[str, str]) -> list[NameRule]:
    down, up = samplers
    rules = [
        NameRule("downsample.weight", (f"{down}.conv.weight",)),
        NameRule("upsample.weight", (f"{up}.conv.weight",)),
        *_branch(
            "semantic", "quantizer.semantic_residual_vector_quantizer", "layers.{n}.codebook", "embed_sum"
        ),
        *_branch(
            "acoustic", "quantizer.acoustic_residual_vector_quantizer", "layers.{n}.codebook", "embed_sum"
        ),
    ]
    for half, (convolutions, transformer) in halves.items():
        rules += _convolutions(half, f"{convolutions}.layers", "")
        rules += _transformers_layers(f"{half}_transformer.layers.{{n}}", f"{transformer}.layers.{{n}}")
    return rules


def _transformers_layers(at: str, its: str) -> list[NameRule]:
    return [
        NameRule(f"{at}.qkv", tuple(f"{its}.self_attn.{part}_proj.weight" for part in "qkv"), concatenated),
        NameRule(f"{at}.output", (f"{its}.self_attn.o_proj.weight",)),
        NameRule(f"{at}.up", (f"{its}.mlp.fc1.weight",)),
        NameRule(f"{at}.down", (f"{its}.mlp.fc2.weight",)),
        *(
            NameRule(f"{at}.{norm}.{part}", (f"{its}.{name}_layernorm.{part}",))
            for norm, name in (("attention_norm", "input"), ("mlp_norm", "post_attention"))
            for part in ("weight", "bias")
        ),
        NameRule(f"{at}.attention_scale", (f"{its}.self_attn_layer_scale.scale",)),
        NameRule(f"{at}.mlp_scale", (f"{its}.mlp_layer_scale.scale",)),
    ]


def _convolutions(half: str, its: str, inner: str) -> list[NameRule]:
    """`inner`: what stands once more inside a wrapped convolution's name (".conv" for the authors' file)."""
    transposed = "convtr.convtr" if inner else "conv"
    return [
        NameRule(f"{half}.{{n}}.{mine}{part}", (f"{its}.{{n}}.{name}.{part}",))
        for mine, name in (
            ("", f"conv{inner}"),
            ("up.", transposed),
            ("first.", f"block.1.conv{inner}"),
            ("second.", f"block.3.conv{inner}"),
        )
        for part in ("weight", "bias")
    ]


def _branch(mine: str, its: str, codebook: str, sums: str) -> list[NameRule]:
    return [
        NameRule(f"quantizer.{mine}.input_proj", (f"{its}.input_proj.weight",), squeezed),
        NameRule(f"quantizer.{mine}.output_proj", (f"{its}.output_proj.weight",), squeezed),
        NameRule(f"quantizer.{mine}.{{n}}.sum", (f"{its}.{codebook}.{sums}",), as_is),
        NameRule(f"quantizer.{mine}.{{n}}.usage", (f"{its}.{codebook}.cluster_usage",), as_is),
    ]
