"""The names that Moshi's tensors have in the authors' files and in those of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from metronome_cli.models.mimi import layouts as mimi
from metronome_cli.models.moshi.shape import MoshiShape
from metronome_cli.models.weights.checkpoint import CheckpointLayout
from metronome_cli.models.weights.rules import (
    NameRule,
    TensorBuilder,
    concatenated,
    flattened,
    half_rotary_qkv,
    layout,
    stacked,
)

_MORE_STEPS = 64  # depth steps that a checkpoint may have beyond those that are run


def layouts(shape: MoshiShape) -> list[CheckpointLayout]:
    """Every naming that a checkpoint of this shape may use, codec included, in the order to try."""
    steps, dim = shape.options.spoken, shape.options.depth_hidden
    common = [*_kyutai_temporal(), *_kyutai_depth()]
    renamed = [*_kyutai_attention_renamed(shape), *common]
    original = [*_kyutai_attention(shape, steps, dim), *common]
    return [
        layout(original, steps=steps),
        layout(renamed, steps=steps),
        layout([*_transformers_moshi(), *_transformers_depth()], steps=steps),
        _speech_to_text(shape),
        *mimi.kyutai(shape.mimi),
        *mimi.transformers("audio_encoder."),
        *mimi.transformers("codec_model."),
        *mimi.transformers(),
    ]


def ignored(shape: MoshiShape) -> list[str]:
    """Tensors that may be left over: unused codec levels, depth steps whose codes are always given, and heads
    that are not run."""
    steps = range(shape.options.spoken, _MORE_STEPS)
    stems = ("depformer_in", "linears", "depformer.*.gating", "depformer.*.in_projs", "depformer.*.out_projs")
    more = [f"{stem}.{step}.*" for stem in stems for step in steps]
    more += [f"depformer_emb.{step - 1}.*" for step in steps if step]
    more += [f"extra_heads.{n}.weight" for n in range(shape.options.extra_heads)]
    codec = [] if shape.options.spoken else _DECODER_HALF
    return [*mimi.IGNORED, *more, *codec]


_DECODER_HALF = ["*decoder.model.*", "*decoder_transformer.*", "*upsample.*", "codec_model.decoder.*"]


# -- the authors' names --


def _kyutai_temporal() -> list[NameRule]:
    return [
        NameRule("text_embedding", ("text_emb.weight",)),
        NameRule("audio_embedding.{n}", ("emb.{n}.weight",)),
        NameRule("text_head", ("text_linear.weight",)),
        NameRule("final_norm", ("out_norm.alpha",), flattened),
        NameRule("layers.{n}.attention_norm", ("transformer.layers.{n}.norm1.alpha",), flattened),
        NameRule("layers.{n}.mlp_norm", ("transformer.layers.{n}.norm2.alpha",), flattened),
        NameRule("layers.{n}.gate_up", ("transformer.layers.{n}.gating.linear_in.weight",)),
        NameRule("layers.{n}.down", ("transformer.layers.{n}.gating.linear_out.weight",)),
    ]


def _kyutai_depth() -> list[NameRule]:
    at = "depformer.layers.{n}"
    return [
        NameRule("depth.inputs", ("depformer_in.*.weight",), stacked),
        NameRule("depth.text", ("depformer_text_emb.weight",)),
        NameRule("depth.codes.{n}", ("depformer_emb.{n}.weight",)),
        NameRule("depth.heads", ("linears.*.weight",), stacked),
        NameRule("depth.layers.{n}.attention_norm", (f"{at}.norm1.alpha",), flattened),
        NameRule("depth.layers.{n}.mlp_norm", (f"{at}.norm2.alpha",), flattened),
        NameRule("depth.layers.{n}.gate_up", (f"{at}.gating.*.linear_in.weight",), stacked),
        NameRule("depth.layers.{n}.down", (f"{at}.gating.*.linear_out.weight",), stacked),
    ]


def _kyutai_attention(shape: MoshiShape, steps: int, dim: int) -> list[NameRule]:
    """As in the files: all depth steps one below the other in one matrix."""
    return [
        NameRule(
            "layers.{n}.qkv",
            ("transformer.layers.{n}.self_attn.in_proj_weight",),
            half_rotary_qkv(shape.decoder.heads),
        ),
        NameRule("layers.{n}.output", ("transformer.layers.{n}.self_attn.out_proj.weight",)),
        NameRule(
            "depth.layers.{n}.qkv",
            ("depformer.layers.{n}.self_attn.in_proj_weight",),
            _first_steps(steps, 3 * dim),
        ),
        NameRule(
            "depth.layers.{n}.output",
            ("depformer.layers.{n}.self_attn.out_proj.weight",),
            _first_steps(steps, dim),
        ),
    ]


def _kyutai_attention_renamed(shape: MoshiShape) -> list[NameRule]:
    """As the authors' package renames them when it loads a file."""
    return [
        NameRule(
            "layers.{n}.qkv",
            ("transformer.layers.{n}.self_attn.in_projs.0.weight",),
            half_rotary_qkv(shape.decoder.heads),
        ),
        NameRule("layers.{n}.output", ("transformer.layers.{n}.self_attn.out_projs.0.weight",)),
        NameRule("depth.layers.{n}.qkv", ("depformer.layers.{n}.self_attn.in_projs.*.weight",), stacked),
        NameRule("depth.layers.{n}.output", ("depformer.layers.{n}.self_attn.out_projs.*.weight",), stacked),
    ]


def _first_steps(steps: int, rows: int) -> TensorBuilder:
    """[stored steps x rows, in] -> [steps, rows, in]; a file may hold more steps than are run."""

    def build(tensors: Sequence[Tensor]) -> Tensor:
        return tensors[0].unflatten(0, (-1, rows))[:steps]  # type: ignore[no-untyped-call,no-any-return]

    return build


# -- the names of `transformers` --


def _transformers_layers(its: str) -> list[NameRule]:
    return [
        NameRule(
            "layers.{n}.qkv", tuple(f"{its}.self_attn.{p}_proj.linear.weight" for p in "qkv"), concatenated
        ),
        NameRule("layers.{n}.output", (f"{its}.self_attn.o_proj.linear.weight",)),
        NameRule("layers.{n}.gate_up", (f"{its}.mlp.fc1.weight",)),
        NameRule("layers.{n}.down", (f"{its}.mlp.fc2.weight",)),
        NameRule("layers.{n}.attention_norm", (f"{its}.input_layernorm.weight",)),
        NameRule("layers.{n}.mlp_norm", (f"{its}.post_attention_layernorm.weight",)),
    ]


def _transformers_moshi() -> list[NameRule]:
    """`MoshiForConditionalGeneration`."""
    return [
        NameRule("text_embedding", ("decoder.model.embed_tokens.weight",)),
        NameRule("audio_embedding.{n}", ("embed_tokens.{n}.weight",)),
        NameRule("text_head", ("decoder.lm_head.weight",)),
        NameRule("final_norm", ("decoder.model.norm.weight",)),
        *_transformers_layers("decoder.model.layers.{n}"),
    ]


def _transformers_depth() -> list[NameRule]:
    its = "depth_decoder.layers.{n}"
    at = "depth.layers.{n}"
    return [
        NameRule("depth.inputs", ("depth_decoder.input_projections.weight",)),
        NameRule("depth.text", ("depth_decoder.text_embed_tokens.weight",)),
        NameRule("depth.codes.{n}", ("depth_decoder.embed_tokens.{n}.weight",)),
        NameRule("depth.heads", ("depth_decoder.lm_heads.weight",)),
        NameRule(f"{at}.attention_norm", (f"{its}.input_layernorm.weight",)),
        NameRule(f"{at}.mlp_norm", (f"{its}.post_attention_layernorm.weight",)),
        NameRule(f"{at}.qkv", tuple(f"{its}.self_attn.{p}_proj.linear.weight" for p in "qkv"), _joined_rows),
        NameRule(f"{at}.output", (f"{its}.self_attn.o_proj.linear.weight",)),
        NameRule(f"{at}.gate_up", (f"{its}.mlp.fc1.weight",)),
        NameRule(f"{at}.down", (f"{its}.mlp.fc2.weight",)),
    ]


def _joined_rows(tensors: Sequence[Tensor]) -> Tensor:
    """[steps, rows, in] each -> [steps, all rows, in]."""
    import torch

    return torch.cat(list(tensors), dim=1)


def _speech_to_text(shape: MoshiShape) -> CheckpointLayout:
    """`KyutaiSpeechToTextForConditionalGeneration`: all streams in one table, and a head with a row of zeros
    for the initial token."""
    text, codes = shape.decoder.need("vocab_size") + 1, shape.options.audio_vocab + 1
    table = "model.embed_tokens.embed_tokens.weight"
    return layout(
        [
            NameRule("text_embedding", (table,), _rows(0, text)),
            *(
                NameRule(f"audio_embedding.{n}", (table,), _rows(text + n * codes, codes))
                for n in range(shape.options.heard)
            ),
            NameRule("text_head", ("lm_head.weight",), _rows(0, shape.decoder.need("vocab_size"))),
            NameRule("final_norm", ("model.norm.weight",)),
            *_transformers_layers("model.layers.{n}"),
        ]
    )


def _rows(start: int, count: int) -> TensorBuilder:
    return lambda tensors: tensors[0][start : start + count]
