"""Qwen2.5-Omni and Qwen3-Omni, frame by frame: audio tower, thinker on the pool, talker on a pool of its own.

A frame: the chunk's mel goes through the tower; its embeddings, between two markers, are fed to the thinker
together with the token left from the frame before; then tokens are decoded. With `adapter_options.talker` a
session that speaks (the load plan asks for more tokens than when listening) also has its talker say them.

Positions. Audio and text advance all three rows of the thinker's rotary positions by one a token, markers
included, so with no image or video the rows are equal: plain positions, that of the cache. A streamed
chunk continues where the last one ended.

What streaming changes: nothing in Qwen2.5's tower when a frame is a whole number of 2 s blocks. Qwen3's tower
attends over 8 s in both directions; shorter frames are attended alone, which is another computation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import Audio
from metronome_cli.models.adapter import AdapterModel
from metronome_cli.models.audio.whisper_mel import HOP, RATE, WhisperMelStream, WhisperStreamingMel
from metronome_cli.models.decoding import ReplyRule, Vocabulary
from metronome_cli.models.qwen_omni.shape import CODES_PER_S, TALKER_CONTEXT, QwenOmniShape
from metronome_cli.models.qwen_omni.talker import (
    CodePredictor,
    TalkerHead3,
    TalkerHead25,
    TextIds3,
    TextIds25,
    TextProjection,
)
from metronome_cli.models.qwen_omni.tower import tokens_of
from metronome_cli.models.qwen_omni.weights import QwenOmniWeights, TalkerWeights, load_weights
from metronome_cli.models.registry import LoadedModel
from metronome_cli.models.sampling import Sampler
from metronome_cli.models.talker.short_decoder import ShortDecoder
from metronome_cli.models.talker.talker_stage import TalkerHead, TalkerInput, TalkerStage
from metronome_cli.models.talker.turn_cache import make_turn_cache, talker_stage

_MARKERS = {"qwen2.5": (151647, 151648), "qwen3": (151669, 151670)}  # before and after each chunk's audio


@dataclass(frozen=True, slots=True)
class OmniFrame:
    """What a profile asks of a frame. `listening`: tokens out at which a session counts as not speaking."""

    frames: int  # mel frames
    audio: int  # embeddings of them
    markers: bool
    listening: int

    @property
    def into(self) -> int:
        return self.audio + 2 * self.markers

    @classmethod
    def of(cls, profile: Profile, shape: QwenOmniShape) -> OmniFrame:
        """Raises UsageError where the profile's frame is not one that the tower makes."""
        where = f"profile {profile.name}"
        samples = profile.frame.samples
        if profile.frame.sample_rate != RATE or samples % HOP:
            raise UsageError(f"{where}: frame: the qwen-omni adapter hears {RATE} Hz in whole 10 ms")
        audio = tokens_of(shape.family, samples // HOP)
        if profile.tokens.prefill not in (audio, audio + 2) or not audio or profile.tokens.fused:
            raise UsageError(
                f"{where}: tokens.prefill is {profile.tokens.prefill:g}; a frame of {profile.frame.period_s:g} s "
                f"gives {audio} audio tokens",
                hint=f"{audio + 2} with the markers around them, or {audio} without",
            )
        markers = profile.tokens.prefill == audio + 2
        return cls(samples // HOP, audio, markers, profile.tokens.decode.listening)


class QwenOmni(AdapterModel):
    """State per slot: the mel's carry, and the token that was not fed yet."""

    def __init__(
        self, weights: QwenOmniWeights, plan: OmniFrame, sampler: Sampler, talker: TalkerStage | None
    ) -> None:
        super().__init__(weights.vocabulary, sampler, talker)
        self._weights = weights
        self._plan = plan
        self._mel = WhisperStreamingMel(weights.shape.tower.mels, weights.decoder.device)
        self._heard: dict[int, WhisperMelStream] = {}
        markers = _within(_MARKERS[weights.shape.family], weights.vocabulary)
        self._markers = weights.vocabulary.embed(markers)

    @classmethod
    def from_profile(
        cls, profile: Profile, weights: Path | Literal["random"], device: str | torch.device, seed: int
    ) -> QwenOmni:
        """A model with its weights. Raises UsageError for a profile or checkpoint that does not fit."""
        path = None if isinstance(weights, str) else weights
        return _fresh(profile, load_weights(profile, path, torch.device(device), seed), seed)

    def positions(self, slot: int, tokens_out: int) -> int:
        """See `InteractionModel.positions`."""
        if self._talker is not None:
            return self._plan.into + tokens_out
        return self._pending.positions(slot, self._plan.into, tokens_out)

    def begin(self, slot: int) -> None:
        self._heard[slot] = WhisperMelStream()

    def end(self, slot: int) -> None:
        del self._heard[slot]

    def encode(self, slots: Sequence[int], audio: Sequence[Audio]) -> Tensor:
        """The next chunk of these slots for the thinker: [batch, audio tokens, hidden]. Moves their state."""
        mel = self._mel([self._heard[slot] for slot in slots], audio)
        embeds: Tensor = self._weights.tower(mel.to(self._weights.decoder.dtype))
        return embeds

    def prompt_rows(self, slots: Sequence[int], heard: Sequence[Tensor] | Tensor) -> list[Tensor]:
        """Each slot's pending token, then its chunk between the markers."""
        rows = []
        for pending, chunk in zip(self._pending.take(slots, self.vocabulary), heard, strict=True):
            marked = (self._markers[:1], chunk, self._markers[1:]) if self._plan.markers else (chunk,)
            rows.append(torch.cat((pending, *marked)))
        return rows

    def spoken(self, slot: int, before: Tensor, rule: ReplyRule) -> TalkerInput | None:
        """Replies longer than that of a listening frame are spoken."""
        speaks = len(rule.tokens) > self._plan.listening
        return TalkerInput(before, rule.tokens, rule.states) if speaks else None

    def describe(self) -> Mapping[str, Any]:
        """Adapter, weights, parameters outside the thinker's layers, bytes of state a session, exactness."""
        return {
            "adapter": "qwen-omni",
            "family": self._weights.shape.family,
            "weights": self._weights.source,
            "parameters": self._weights.parameters,
            "state_bytes": WhisperMelStream.nbytes,
            "streaming": _exactness(self._weights.shape, self._plan.frames),
            "talker": self._talker is not None,
            **({} if self._talker is None else {"talker_restarts": self._talker.restarts}),
        }


def _within(ids: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    """Published token numbers, folded into a smaller vocabulary where a scaled-down model has one."""
    return [token % len(vocabulary.embedding) for token in ids]


def _exactness(shape: QwenOmniShape, frames: int) -> str:
    block = 200 if shape.family == "qwen2.5" else 800
    if frames % block == 0:
        return "exact: a frame is a whole number of the tower's blocks"
    return f"not the whole utterance's: frames are encoded alone, the tower's blocks are {block // 100} s"


def _fresh(profile: Profile, weights: QwenOmniWeights, seed: int) -> QwenOmni:
    plan = OmniFrame.of(profile, weights.shape)
    sampler = Sampler(weights.shape.temperature, seed)
    talker = None if weights.talker is None else _talker(profile, weights, weights.talker, seed)
    return QwenOmni(weights, plan, sampler, talker)


def _talker(profile: Profile, weights: QwenOmniWeights, parts: TalkerWeights, seed: int) -> TalkerStage:
    family = weights.shape.family
    stage = talker_stage(profile, weights.shape.talker, CODES_PER_S[family], TALKER_CONTEXT[family])
    codes = max(1, round(CODES_PER_S[family] * profile.frame.period_s))
    stack = make_turn_cache(parts.decoder, profile, stage, CODES_PER_S[family])
    return TalkerStage(_voice(weights, parts, Sampler(weights.shape.temperature, seed + 1)), stack, codes)


def _voice(weights: QwenOmniWeights, parts: TalkerWeights, sampler: Sampler) -> TalkerHead:
    vocabulary_size, codes = len(weights.vocabulary.embedding), len(parts.codec.embedding)
    if isinstance(parts.text, TextProjection):
        assert parts.predictor is not None
        assert parts.tables is not None
        whole = TextIds3()
        ids = TextIds3(
            role=tuple(token % vocabulary_size for token in whole.role),
            bos=whole.bos % vocabulary_size,
            pad=whole.pad % vocabulary_size,
            sounds=min(whole.sounds, parts.tables.shape[1], codes),
            header=tuple(code % codes for code in whole.header),
        )
        short = ShortDecoder(parts.predictor, positions=weights.shape.groups + 1)
        predictor = CodePredictor(short, parts.tables, parts.heads)
        return TalkerHead3(weights.vocabulary, parts.codec, parts.text, predictor, sampler=sampler, ids=ids)
    full = TextIds25()
    sounds = codes - (8448 - full.codec_pad)  # the last 156 of a talker's codes are no sounds
    ids25 = TextIds25(
        full.bos % vocabulary_size, full.pad % vocabulary_size, max(1, sounds), max(1, sounds) + 1
    )
    return TalkerHead25(weights.vocabulary, parts.codec, parts.text, sampler, ids25)


def load(profile: Profile, *, weights: Path | None, device: str, seed: int) -> LoadedModel:
    """The adapter for the engine: weights once, and fresh sessions on them. See `models.registry`."""
    read = load_weights(profile, weights, torch.device(device), seed)
    chunk = OmniFrame.of(profile, read.shape).into + 1
    return LoadedModel(read.decoder, lambda: _fresh(profile, read, seed), chunk, read.source, read.vocabulary)
