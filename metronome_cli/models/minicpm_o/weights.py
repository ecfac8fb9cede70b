"""MiniCPM-o's weights: where each part is found in the published checkpoint, or random ones.

`llm.` is a Qwen2 (2.6) or Qwen3 (4.5) with its head, `apm.` Whisper's encoder, `audio_projection_layer.`
what follows it, `tts.` the talker: a Llama with tables and heads of its own, the heads stored by weight
norm (a length and a direction a row). Vision (`vpm.`, `resampler.`) and the vocoder are passed over. The
repository's own code is never run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from metronome_cli.config.model_shape import ModelShape
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.projection import Projection
from metronome_cli.models.decoding import Vocabulary
from metronome_cli.models.minicpm_o.duplex import UnitIds
from metronome_cli.models.minicpm_o.encoder import AudioProjection, UnitEncoder
from metronome_cli.models.minicpm_o.shape import MiniCpmShape
from metronome_cli.models.minicpm_o.talker import TalkerHeadWeights
from metronome_cli.models.weights.checkpoint import (
    Checkpoint,
    TensorRecipe,
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

_PASSED_OVER = (
    "vpm.*",
    "resampler.*",
    "tts.dvae.*",
    "tts.projector_spk.*",
    "tts.model.embed_tokens.weight",
    "*.inv_freq",
    "*.rotary_emb.*",
)
_PROJECTOR = {"2.6": "projector", "4.5": "projector_semantic"}


@dataclass(frozen=True, slots=True)
class MiniCpmWeights:
    """All weights of one model, shared by every session and every engine. `decided`: its answers mean
    something."""

    shape: MiniCpmShape
    encoder: UnitEncoder
    projection: AudioProjection
    decoder: DecoderWeights
    vocabulary: Vocabulary
    ids: UnitIds
    talker: DecoderWeights | None
    voice: TalkerHeadWeights | None
    source: str

    @property
    def parameters(self) -> int:
        """Parameters outside the language model's layers."""
        talker = self.talker.parameters if self.talker else 0
        return parameter_count(self.encoder, self.projection) + self.vocabulary.embedding.numel() + talker


def load_weights(profile: Profile, weights: Path | None, device: torch.device, seed: int) -> MiniCpmWeights:
    """From a checkpoint directory, or random. Raises UsageError for one that does not fit the profile."""
    shape = MiniCpmShape.of(profile)
    checkpoint = None if weights is None else Checkpoint.open(weights)
    if checkpoint is not None:
        _check_version(checkpoint, shape)
    read = _MiniCpmReader(checkpoint, device, working_dtype(profile.shape, device), seed)
    encoder, projection = read.audio(shape)
    decoder, vocabulary = read.language(profile.shape, shape)
    talker, voice = (None, None) if shape.talker is None else read.talker(shape, shape.talker, profile.shape)
    if checkpoint is not None:
        refuse_unexpected(checkpoint, _PASSED_OVER + (("tts.*",) if talker is None else ()))
        checkpoint.close()
    ids = UnitIds() if weights is None else UnitIds.read(weights)
    return MiniCpmWeights(
        shape=shape,
        encoder=encoder,
        projection=projection,
        decoder=decoder,
        vocabulary=vocabulary,
        ids=ids.within(len(vocabulary.embedding)),
        talker=talker,
        voice=voice,
        source="random" if weights is None else str(weights),
    )


def _check_version(checkpoint: Checkpoint, shape: MiniCpmShape) -> None:
    """Only `version` in its configuration tells 4.5 from 2.6; a file without one is taken at the
    profile's word."""
    config = checkpoint.config()
    if config and (str(config.get("version", "2.6")) == "4.5") != (shape.version == "4.5"):
        raise UsageError(
            f"{checkpoint.root}: config.json is not of MiniCPM-o {shape.version}",
            hint="use the profile of the checkpoint's version",
        )


def weight_norm(tensors: Sequence[Tensor]) -> Tensor:
    """A length a row, [rows, 1], and directions, [rows, columns], to the matrix."""
    length, direction = tensors
    norms: Tensor = torch.linalg.vector_norm(direction.float(), dim=1, keepdim=True)
    return length * direction / norms.to(direction)


def _normed(name: str) -> TensorRecipe | None:
    if not name.startswith("head_code."):
        return None
    stem = f"tts.{name.removesuffix('.weight')}.parametrizations.weight"
    return TensorRecipe((f"{stem}.original0", f"{stem}.original1"), weight_norm)


def _own(name: str) -> TensorRecipe | None:
    return TensorRecipe((f"tts.{name}",)) if name.startswith(("head_code.", "emb_", "projector")) else None


def _inside(name: str) -> TensorRecipe | None:
    return (
        None if name.startswith(("head_code.", "emb_", "projector")) else TensorRecipe((f"tts.model.{name}",))
    )


_TALKER_LAYOUTS = (_normed, _own, _inside)


@dataclass(slots=True)
class _MiniCpmReader:
    """Parts of one checkpoint, or random ones, on one device in one dtype."""

    checkpoint: Checkpoint | None
    device: torch.device
    dtype: torch.dtype
    seed: int

    def audio(self, shape: MiniCpmShape) -> tuple[UnitEncoder, AudioProjection]:
        with on_meta():
            encoder, projection = UnitEncoder(shape.encoder), AudioProjection(shape.encoder)
        parts = ((encoder, "apm."), (projection, "audio_projection_layer."))
        for part, (module, prefix) in enumerate(parts):
            if self.checkpoint is None:
                randomise(module, self.device, self.dtype, self.seed * 16 + part)
            else:
                fill(module, self.checkpoint, prefixed(prefix), self.device, self.dtype)
        return encoder.eval(), projection.eval()

    def language(self, language: ModelShape, shape: MiniCpmShape) -> tuple[DecoderWeights, Vocabulary]:
        form = BlockVariant(qkv_bias=shape.version == "2.6", head_norms=shape.version == "4.5")
        tied = self.checkpoint is not None and bool(self.checkpoint.config().get("tie_word_embeddings"))
        layouts = decoder_layouts("llm.model.", "llm.lm_head.weight", form, tied=tied)
        source = weight_source(self.checkpoint, layouts, self.device, self.dtype, self.seed * 16 + 2)
        return load_decoder(source, language, form)

    def talker(
        self, shape: MiniCpmShape, talker: ModelShape, language: ModelShape
    ) -> tuple[DecoderWeights, TalkerHeadWeights]:
        form = BlockVariant(embedding="emb_text.weight", head="head_code.0.weight", embedding_rows=shape.text)
        decoder, first = load_decoder(self._talker_source(3), talker, form)
        source = self._talker_source(4)
        size = (talker.need("vocab_size"), talker.hidden_size)
        tables = [source.tensor(f"emb_code.{i}.weight", *size, fan_in=1) for i in range(shape.groups)]
        heads = [Projection(source.tensor(f"head_code.{i}.weight", *size)) for i in range(1, shape.groups)]
        name = _PROJECTOR[shape.version]
        voice = TalkerHeadWeights(
            text=first.embedding,
            codes=torch.stack(tables),
            heads=(first.head, *heads),
            first=_linear(source, f"{name}.linear1", talker.hidden_size, language.hidden_size),
            second=_linear(source, f"{name}.linear2", talker.hidden_size, talker.hidden_size),
        )
        return decoder, voice

    def _talker_source(self, part: int) -> WeightSource:
        """`part` keeps random parts apart that use the same names."""
        return weight_source(self.checkpoint, _TALKER_LAYOUTS, self.device, self.dtype, self.seed * 16 + part)


def _linear(source: WeightSource, name: str, rows: int, columns: int) -> Projection:
    weight = source.tensor(f"{name}.weight", rows, columns)
    return Projection(weight, source.tensor(f"{name}.bias", rows, value=0.0))
