"""MiniCPM-o 4.5 and 2.6, unit by unit: streaming encoder, language model on the pool, talker on a pool of
its own.

A unit is one second. 4.5, full duplex: `<unit>`, 10 audio embeddings, then the model listens or speaks;
what ended the unit is fed with `</unit>` before the next one. 2.6: its audio between two markers (a
`<unit>` before them where the profile counts one), then tokens when the load asks for them: the
application decides there.

The encoder's cache lies outside the pool and is a sawtooth: it grows by 50 positions a second and is
dropped every 29. 2.6 drops it also when an answer begins. A session opened at an age begins at that age's
point of the sawtooth.

Positions are plain, that of the cache. Not reproduced: the authors' optional windows over the language
model's cache (the profile's policy takes their place), and their cut at 28 characters of text a unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from metronome_cli.config.profile import Profile
from metronome_cli.core.types import Audio
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.interface import CachedDecoder
from metronome_cli.models.adapter import AdapterModel
from metronome_cli.models.decoding import ReplyRule, SlotSampler
from metronome_cli.models.minicpm_o.duplex import (
    SLOTS,
    DuplexSampler,
    ModelDecidedUnit,
    ScheduledUnit,
)
from metronome_cli.models.minicpm_o.encoder import UNIT_POSITIONS, EncoderCache
from metronome_cli.models.minicpm_o.mel import SLIDE_AT, UnitMel26, UnitMel45, UnitMelStream
from metronome_cli.models.minicpm_o.shape import CODES_PER_S, TALKER_CONTEXT
from metronome_cli.models.minicpm_o.talker import TalkerHead26, TalkerHead45
from metronome_cli.models.minicpm_o.weights import MiniCpmWeights, load_weights
from metronome_cli.models.registry import LoadedModel
from metronome_cli.models.sampling import Sampler
from metronome_cli.models.talker.talker_stage import TalkerInput, TalkerStage
from metronome_cli.models.talker.turn_cache import make_turn_cache, talker_stage

UNITS_KEPT = 29  # of the encoder's cache
_AUDIO_BOS = {"2.6": 21_132, "4.5": 151_687}


@dataclass(slots=True)
class UnitState:
    """One slot. unfed: tokens that go before the next unit; speaking: a turn is open; fresh: no frame yet."""

    cache: EncoderCache
    mel: UnitMelStream = field(default_factory=UnitMelStream)
    unfed: list[int] = field(default_factory=list)
    speaking: bool = False
    fresh: bool = True


class MiniCpmO(AdapterModel):
    """State per slot: `UnitState`."""

    def __init__(
        self, weights: MiniCpmWeights, per_unit: float, seed: int, talker: TalkerStage | None
    ) -> None:
        self._weights = weights
        self._shape = shape = weights.shape
        self._per_unit = per_unit  # cache positions a unit on average, to tell a session's age by
        self._decides = shape.version == "4.5" and (
            shape.decide == "model" or (shape.decide == "auto" and weights.source != "random")
        )
        sampler: SlotSampler = (
            DuplexSampler(weights.ids, seed, shape.word_temperature)
            if self._decides
            else Sampler(shape.temperature, seed)
        )
        super().__init__(weights.vocabulary, sampler, talker)
        device = weights.decoder.device
        self._mel45 = UnitMel45(shape.encoder.mels, device)
        self._mel26 = UnitMel26(shape.encoder.mels, device)
        self._sessions: dict[int, UnitState] = {}
        self._encoder_peak = 0

    @classmethod
    def from_profile(
        cls, profile: Profile, weights: Path | Literal["random"], device: str | torch.device, seed: int
    ) -> MiniCpmO:
        """A model with its weights. Raises UsageError for a profile or checkpoint that does not fit."""
        path = None if isinstance(weights, str) else weights
        return _fresh(profile, load_weights(profile, path, torch.device(device), seed), seed)

    def positions(self, slot: int, tokens_out: int) -> int:
        """See `InteractionModel.positions`; where the model decides, the most that it can come to."""
        before = len(self._sessions[slot].unfed) + self._before_answer
        if self._decides:
            return before + SLOTS - 1
        if self._talker is not None and self._shape.version == "2.6":
            return before + tokens_out
        return before + max(0, tokens_out - 1)

    def encode(self, slots: Sequence[int], audio: Sequence[Audio]) -> Tensor:
        """The next second of these slots for the language model: [batch, 10 or 25, hidden]. Moves their
        state."""
        sessions = [self._sessions[slot] for slot in slots]
        if self._shape.version == "4.5":
            mels = self._mel45.units([session.mel for session in sessions], audio)
        else:
            mels = list(self._mel26.units(audio))
        heard = self._weights.encoder(mels, [session.cache for session in sessions])
        held = sum(session.cache.nbytes for session in self._sessions.values())
        self._encoder_peak = max(self._encoder_peak, held)
        embeds: Tensor = self._weights.projection(heard)
        return embeds

    def describe(self) -> Mapping[str, Any]:
        """Adapter, weights, parameters outside the language model's layers, bytes of state a session."""
        shape = self._shape
        positions = 2 * shape.encoder.layers * shape.encoder.width * self._weights.decoder.dtype.itemsize
        cache = UNITS_KEPT * UNIT_POSITIONS * positions
        mel = 4 * SLIDE_AT if shape.version == "4.5" else 0
        return {
            "adapter": "minicpm-o",
            "version": shape.version,
            "weights": self._weights.source,
            "parameters": self._weights.parameters,
            "state_bytes": cache + mel,
            "state_bytes_mean": cache // 2 + mel,
            "encoder_bytes_peak": self._encoder_peak,  # of all sessions together
            "decides": "model" if self._decides else "plan",
            "streaming": _exactness(shape.version),
            "talker": self._talker is not None,
            **({} if self._talker is None else {"talker_restarts": self._talker.restarts}),
        }

    @property
    def _before_answer(self) -> int:
        """Positions of a unit up to its answer; 4.5's `</unit>` goes with the next one."""
        return self._shape.into - 1 if self._shape.version == "4.5" else self._shape.into

    def begin(self, slot: int) -> None:
        decoder = self._weights.decoder
        self._sessions[slot] = UnitState(EncoderCache(self._shape.encoder, decoder.device, decoder.dtype))

    def end(self, slot: int) -> None:
        del self._sessions[slot]

    def prepare(self, stack: CachedDecoder, slots: Sequence[int], tokens_out: Sequence[int]) -> None:
        """A session opened at an age starts in the middle of the encoder's cycle. 2.6 drops the encoder's cache
        when an answer begins."""
        for slot, wanted in zip(slots, tokens_out, strict=True):
            session, length = self._sessions[slot], stack.length(slot)
            if session.fresh and length:
                session.cache.fill(round(length / self._per_unit) % UNITS_KEPT * UNIT_POSITIONS)
            if self._shape.version == "2.6" and wanted > self._shape.listening and not session.speaking:
                session.cache.reset()
            session.fresh = False

    def prompt_rows(self, slots: Sequence[int], heard: Sequence[Tensor] | Tensor) -> list[Tensor]:
        """Each session's pending tokens, then its unit."""
        ids, embed, rows = self._weights.ids, self.vocabulary.embed, []
        for slot, audio in zip(slots, heard, strict=True):
            session = self._sessions[slot]
            opening, closing = [*session.unfed], []
            if self._shape.version == "4.5" or self._shape.into > self._shape.audio + 2:
                opening.append(ids.unit)
            if self._shape.version == "2.6":
                opening.append(ids.audio_start)
                closing.append(ids.audio_end)
            session.unfed = []
            rows.append(torch.cat([embed(opening), audio, embed(closing)]))
        return rows

    def replies(self, slots: Sequence[int], tokens_out: Sequence[int]) -> Sequence[ReplyRule]:
        """2.6: a number of tokens. 4.5: a unit that the load or the model decides on."""
        if self._shape.version == "2.6":
            return super().replies(slots, tokens_out)
        ids = self._weights.ids
        if self._decides:
            return [ModelDecidedUnit(ids, open_turn=self._sessions[slot].speaking) for slot in slots]
        listening = self._shape.listening
        return [ScheduledUnit(ids, max(1, wanted), wanted > listening) for wanted in tokens_out]

    def keep(self, slots: Sequence[int], rules: Sequence[ReplyRule]) -> None:
        """Keep the tokens that precede the next unit, and whether a turn is open."""
        for slot, rule in zip(slots, rules, strict=True):
            session = self._sessions[slot]
            if isinstance(rule, ScheduledUnit | ModelDecidedUnit):
                session.unfed = [rule.tokens[-1], self._weights.ids.unit_end]
                session.speaking = (session.speaking or rule.speaks) and not rule.turn_over
            else:
                session.unfed = [] if self._talker is not None else rule.tokens[-1:]
                session.speaking = len(rule.tokens) > self._shape.listening

    def spoken(self, slot: int, before: Tensor, rule: ReplyRule) -> TalkerInput | None:
        """The text of a unit without its first token, `<|speak|>`, and its last, which ends the unit."""
        if isinstance(rule, ScheduledUnit | ModelDecidedUnit):
            return TalkerInput(before, rule.tokens[1:-1], rule.states[1:]) if rule.speaks else None
        speaks = len(rule.tokens) > self._shape.listening
        return TalkerInput(before, rule.tokens, rule.states) if speaks else None

    def ends_turn(self, rule: ReplyRule) -> bool:
        return isinstance(rule, ModelDecidedUnit) and rule.turn_over


def _exactness(version: str) -> str:
    if version == "4.5":
        return "exact: units equal one pass in which each second sees itself and all before it, for 29 s at a time"
    return (
        "the authors' own: the convolutions see zeros at each second's edges, mel and floor are each second's"
    )


def _fresh(profile: Profile, weights: MiniCpmWeights, seed: int) -> MiniCpmO:
    talker = None if weights.talker is None else _talker(profile, weights, weights.talker, seed)
    return MiniCpmO(weights, profile.mean_tokens_per_frame, seed, talker)


def _talker(profile: Profile, weights: MiniCpmWeights, decoder: DecoderWeights, seed: int) -> TalkerStage:
    assert weights.voice is not None
    version = weights.shape.version
    stage = talker_stage(profile, weights.shape.talker, CODES_PER_S[version], TALKER_CONTEXT)
    sampler = Sampler(weights.shape.temperature, seed + 1)
    voice = (TalkerHead45 if version == "4.5" else TalkerHead26)(weights.voice, sampler, _AUDIO_BOS[version])
    per_s = CODES_PER_S[version] + SLOTS
    return TalkerStage(
        voice,
        make_turn_cache(decoder, profile, stage, per_s),
        round(CODES_PER_S[version]),
    )


def load(profile: Profile, *, weights: Path | None, device: str, seed: int) -> LoadedModel:
    """The adapter for the engine: weights once, and fresh sessions on them. See `models.registry`."""
    read = load_weights(profile, weights, torch.device(device), seed)
    return LoadedModel(read.decoder, lambda: _fresh(profile, read, seed), read.shape.into + 2, read.source)
