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
from metronome_cli.core.types import Audio, PoolState
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.interface import CachedDecoder, StageTimer
from metronome_cli.models.decoding import FixedLengthReply, SampleTokens, Spoken, decode_replies, prefill
from metronome_cli.models.minicpm_o.duplex import (
    SLOTS,
    DuplexSampler,
    DuplexUnit,
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


class MiniCpmO:
    """Implements `engine.interface.InteractionModel`."""

    def __init__(
        self, weights: MiniCpmWeights, per_unit: float, seed: int, talker: TalkerStage | None
    ) -> None:
        self.stages: tuple[str, ...] = ("encode", "prefill", "decode") + (("talker",) if talker else ())
        self._weights = weights
        self._shape = shape = weights.shape
        self._per_unit = per_unit  # cache positions a unit on average, to tell a session's age by
        self._talker = talker
        self._decides = shape.version == "4.5" and (
            shape.decide == "model" or (shape.decide == "auto" and weights.source != "random")
        )
        self._sampler: Sampler | DuplexSampler = (
            DuplexSampler(weights.ids, seed, shape.word_temperature)
            if self._decides
            else Sampler(shape.temperature, seed)
        )
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

    def open(self, slot: int) -> None:
        """Nothing heard, nothing said. Raises ValueError for a slot that is open."""
        if slot in self._sessions:
            raise ValueError(f"slot {slot} is open already")
        decoder = self._weights.decoder
        self._sessions[slot] = UnitState(EncoderCache(self._shape.encoder, decoder.device, decoder.dtype))
        self._sampler.open(slot)
        if self._talker is not None:
            self._talker.open(slot)

    def close(self, slot: int) -> None:
        """Forget this slot."""
        del self._sessions[slot]
        self._sampler.close(slot)
        if self._talker is not None:
            self._talker.close(slot)

    @torch.inference_mode()
    def frame(
        self,
        stack: CachedDecoder,
        slots: Sequence[int],
        audio: Sequence[Audio],
        tokens_out: Sequence[int],
        timer: StageTimer,
    ) -> Sequence[Spoken]:
        """One unit of each slot; audio[i]: [16,000 samples]."""
        sessions = [self._sessions[slot] for slot in slots]
        speaks = [wanted > self._shape.listening for wanted in tokens_out]
        for slot, session, begins in zip(slots, sessions, speaks, strict=True):
            self._settle(session, stack.length(slot), begins)
        with timer("encode"):
            embeds = self.encode(slots, audio)
        with timer("prefill"):
            before = prefill(stack, slots, self._rows(sessions, embeds))
        units = [self._unit(s, n, spoken) for s, n, spoken in zip(sessions, tokens_out, speaks, strict=True)]
        pick: SampleTokens = self._sampler.pick
        with timer("decode"):
            decode_replies(stack, slots, before, units, vocabulary=self._weights.vocabulary, pick=pick)
        for session, unit in zip(sessions, units, strict=True):
            self._end_unit(session, unit)
        silent: set[int] = set()
        if self._talker is not None:
            with timer("talker"):
                silent = self._speak(self._talker, slots, before, units)
        return [
            Spoken(() if slot in silent else unit.tokens) for slot, unit in zip(slots, units, strict=True)
        ]

    @torch.inference_mode()
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

    def pools(self) -> Mapping[str, PoolState]:
        """Pools beside the language model's."""
        return {} if self._talker is None else {"talker": self._talker.pool()}

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

    def _settle(self, session: UnitState, length: int, begins: bool) -> None:
        """A session opened at an age takes its place in the sawtooth; 2.6 drops the cache as an answer
        begins."""
        if session.fresh and length:
            session.cache.fill(round(length / self._per_unit) % UNITS_KEPT * UNIT_POSITIONS)
        if self._shape.version == "2.6" and begins and not session.speaking:
            session.cache.reset()
        session.fresh = False

    def _rows(self, sessions: Sequence[UnitState], embeds: Tensor) -> list[Tensor]:
        """Each session's unfed tokens, then its unit: [n, hidden] each."""
        ids, vocabulary = self._weights.ids, self._weights.vocabulary
        rows = []
        for session, heard in zip(sessions, embeds, strict=True):
            opening, closing = [*session.unfed], []
            if self._shape.version == "4.5" or self._shape.into > self._shape.audio + 2:
                opening.append(ids.unit)
            if self._shape.version == "2.6":
                opening.append(ids.audio_start)
                closing.append(ids.audio_end)
            session.unfed = []
            rows.append(torch.cat([vocabulary.embed(opening), heard, vocabulary.embed(closing)]))
        return rows

    def _unit(self, session: UnitState, wanted: int, speaks: bool) -> DuplexUnit | FixedLengthReply:
        if self._shape.version == "2.6":
            return FixedLengthReply(wanted, feed_last=self._talker is not None)
        if self._decides:
            return ModelDecidedUnit(self._weights.ids, open_turn=session.speaking)
        return ScheduledUnit(self._weights.ids, max(1, wanted), speaks)

    def _end_unit(self, session: UnitState, unit: DuplexUnit | FixedLengthReply) -> None:
        if isinstance(unit, FixedLengthReply):
            session.unfed = [] if unit.feed_last else unit.tokens[-1:]
            session.speaking = len(unit.tokens) > self._shape.listening
            return
        session.unfed = [unit.tokens[-1], self._weights.ids.unit_end]
        session.speaking = (session.speaking or unit.speaks) and not unit.turn_over

    def _speak(
        self,
        talker: TalkerStage,
        slots: Sequence[int],
        before: Tensor,
        units: Sequence[DuplexUnit | FixedLengthReply],
    ) -> set[int]:
        """Synthesize the replies of speaking slots. A slot without a free block in the talker's pool has no audio."""
        speaking: dict[int, TalkerInput] = {}
        for slot, state, unit in zip(slots, before, units, strict=True):
            if isinstance(unit, FixedLengthReply):
                if len(unit.tokens) > self._shape.listening:
                    speaking[slot] = TalkerInput(state, unit.tokens, unit.states)
            elif unit.speaks:  # the first token only says that it speaks, the last that the unit ends
                speaking[slot] = TalkerInput(state, unit.tokens[1:-1], unit.states[1:])
            if slot not in speaking:
                talker.end_turn(slot)
        spoken = talker.speak(list(speaking), list(speaking.values()))
        for slot, unit in zip(slots, units, strict=True):
            if slot in speaking and isinstance(unit, ModelDecidedUnit) and unit.turn_over:
                talker.end_turn(slot)
        return set(speaking) - set(spoken)


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
