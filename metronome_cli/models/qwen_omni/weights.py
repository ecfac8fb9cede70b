"""Qwen-Omni's weights: where each part is found in a checkpoint, or random ones.

The authors' files put the thinker under `thinker.model.` and `thinker.audio_tower.`; `transformers`
writes `thinker.model.language_model.`; a thinker saved alone lacks the `thinker.`. The vision encoder and
the vocoder are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from metronome_cli.config.model_shape import ModelShape
from metronome_cli.config.profile import Profile
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.projection import Projection
from metronome_cli.models.decoding import Vocabulary
from metronome_cli.models.qwen_omni.shape import QwenOmniShape
from metronome_cli.models.qwen_omni.talker import TextProjection
from metronome_cli.models.qwen_omni.tower import AudioTower3, AudioTower25, make_tower
from metronome_cli.models.weights.checkpoint import (
    Checkpoint,
    CheckpointLayout,
    fill,
    on_meta,
    parameter_count,
    prefixed,
    randomise,
    refuse_unexpected,
)
from metronome_cli.models.weights.load_decoder import (
    BlockVariant,
    decoder_layouts,
    load_decoder,
    weight_source,
    working_dtype,
)
from metronome_cli.models.weights.source import WeightSource

_BODIES = ("thinker.model.", "thinker.model.language_model.", "model.language_model.", "model.")
_TOWERS = ("thinker.audio_tower.", "thinker.model.audio_tower.", "audio_tower.", "model.audio_tower.")
_PASSED_OVER = (
    "*visual.*",
    "token2wav.*",
    "code2wav.*",
    "*.inv_freq",
    "talker.hidden_projection.*",
    "*audio_tower.positional_embedding*",
)


@dataclass(frozen=True, slots=True)
class TalkerWeights:
    """A talker's decoder and tables; `text`: from the thinker's width. The rest is Qwen3's code predictor."""

    decoder: DecoderWeights
    codec: Vocabulary
    text: Projection | TextProjection
    predictor: DecoderWeights | None = None
    tables: Tensor | None = None
    heads: tuple[Projection, ...] = ()


@dataclass(frozen=True, slots=True)
class QwenOmniWeights:
    """All weights of one model, shared by every session and every engine."""

    shape: QwenOmniShape
    tower: AudioTower25 | AudioTower3
    decoder: DecoderWeights
    vocabulary: Vocabulary
    talker: TalkerWeights | None
    source: str

    @property
    def parameters(self) -> int:
        """Parameters outside the thinker's layers: tower, embedding table and talker."""
        talker = self.talker.decoder.parameters if self.talker else 0
        return parameter_count(self.tower) + self.vocabulary.embedding.numel() + talker


def load_weights(profile: Profile, weights: Path | None, device: torch.device, seed: int) -> QwenOmniWeights:
    """From a checkpoint directory, or random. Raises UsageError for one that does not fit the profile."""
    shape = QwenOmniShape.of(profile)
    checkpoint = None if weights is None else Checkpoint.open(weights)
    read = _QwenOmniReader(checkpoint, device, working_dtype(profile.shape, device), seed)
    form = BlockVariant(
        qkv_bias=shape.family == "qwen2.5", head_norms=shape.family == "qwen3", experts=shape.experts
    )
    tower = read.tower(shape)
    decoder, vocabulary = load_decoder(read.source(_thinker_layouts(form), 1), profile.shape, form)
    talker = None if shape.talker is None else read.talker(shape, shape.talker, profile.shape.hidden_size)
    if checkpoint is not None:
        refuse_unexpected(checkpoint, _PASSED_OVER + (("talker.*",) if talker is None else ()))
        checkpoint.close()
    return QwenOmniWeights(
        shape, tower, decoder, vocabulary, talker, "random" if weights is None else str(weights)
    )


def _thinker_layouts(form: BlockVariant) -> list[CheckpointLayout]:
    return [
        layout
        for body in _BODIES
        for layout in decoder_layouts(body, "thinker." * body.startswith("thinker.") + "lm_head.weight", form)
    ]


@dataclass(slots=True)
class _QwenOmniReader:
    """Parts of one checkpoint, or random ones, on one device in one dtype."""

    checkpoint: Checkpoint | None
    device: torch.device
    dtype: torch.dtype
    seed: int

    def source(self, layouts: list[CheckpointLayout], part: int) -> WeightSource:
        """`part` keeps random parts apart that use the same names."""
        return weight_source(self.checkpoint, layouts, self.device, self.dtype, self.seed * 16 + part)

    def tower(self, shape: QwenOmniShape) -> AudioTower25 | AudioTower3:
        with on_meta():
            tower = make_tower(shape.family, shape.tower)
        if self.checkpoint is None:
            randomise(tower, self.device, self.dtype, self.seed)
        else:
            fill(
                tower, self.checkpoint, prefixed(*_TOWERS), self.device, self.dtype, optional=("audio_bos_*",)
            )
        tower.positions = tower.positions.to(self.device, self.dtype)
        return tower.eval()

    def talker(self, shape: QwenOmniShape, talker: ModelShape, thinker: int) -> TalkerWeights:
        if shape.predictor is not None:
            return self._talker3(shape, talker, shape.predictor, thinker)
        form = BlockVariant(qkv_bias=True, head="codec_head.weight", embedding_width=thinker)
        source = self.source(decoder_layouts("talker.model.", "talker.codec_head.weight", form), 2)
        decoder, codec = load_decoder(source, talker, form)
        project = _linear(self._plain("talker.", 3), "thinker_to_talker_proj", talker.hidden_size, thinker)
        return TalkerWeights(decoder, codec, project)

    def _talker3(
        self, shape: QwenOmniShape, talker: ModelShape, predictor: ModelShape, thinker: int
    ) -> TalkerWeights:
        form = BlockVariant(
            head_norms=True,
            experts=shape.talker_experts,
            embedding="codec_embedding.weight",
            head="codec_head.weight",
        )
        source = self.source(decoder_layouts("talker.model.", "talker.codec_head.weight", form), 2)
        decoder, codec = load_decoder(source, talker, form)
        plain = self._plain("talker.", 3)
        text = TextProjection(
            _linear(plain, "text_projection.linear_fc1", talker.need("intermediate_size"), thinker),
            _linear(
                plain, "text_projection.linear_fc2", talker.hidden_size, talker.need("intermediate_size")
            ),
        )
        return TalkerWeights(decoder, codec, text, *self._predictor(predictor, shape.groups))

    def _predictor(
        self, shape: ModelShape, groups: int
    ) -> tuple[DecoderWeights, Tensor, tuple[Projection, ...]]:
        form = BlockVariant(head_norms=True, embedding="codec_embedding.0.weight", head="lm_head.0.weight")
        at = "talker.code_predictor."
        decoder, _ = load_decoder(
            self.source(decoder_layouts(f"{at}model.", f"{at}lm_head.0.weight", form), 4), shape, form
        )
        plain = self._plain(at, 5)
        size = (shape.need("vocab_size"), shape.hidden_size)
        tables = [
            plain.tensor(f"model.codec_embedding.{i}.weight", *size, fan_in=1) for i in range(groups - 1)
        ]
        heads = (Projection(plain.tensor(f"lm_head.{i}.weight", *size)) for i in range(groups - 1))
        return decoder, torch.stack(tables), tuple(heads)

    def _plain(self, prefix: str, part: int) -> WeightSource:
        return self.source(list(prefixed(prefix)), part)


def _linear(source: WeightSource, name: str, rows: int, columns: int) -> Projection:
    weight = source.tensor(f"{name}.weight", rows, columns)
    return Projection(weight, source.tensor(f"{name}.bias", rows, value=0.0))
