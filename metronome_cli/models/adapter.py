"""Base class of the adapters whose reply is text, decoded token by token after the audio of a frame.

A frame: `encode` turns audio into embeddings, `prompt_rows` puts them between the tokens that belong around them,
one forward pass prefills the rows, then each session's rule of `replies` decodes. An adapter with a talker turns the
text into codec codes afterwards. State per slot is kept by the subclass (`begin`, `end`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from metronome_cli.core.types import Audio, PoolState
from metronome_cli.engine.interface import CachedDecoder, FrameReply, StageTimer
from metronome_cli.models.decoding import (
    FixedLengthReply,
    PendingTokens,
    ReplyRule,
    SlotSampler,
    Vocabulary,
    decode_replies,
    prefill,
)
from metronome_cli.models.talker.talker_stage import TalkerInput, TalkerStage


class AdapterModel(ABC):
    """Implements `engine.interface.InteractionModel`."""

    def __init__(
        self, vocabulary: Vocabulary, sampler: SlotSampler, talker: TalkerStage | None = None
    ) -> None:
        self.vocabulary = vocabulary
        self.stages: tuple[str, ...] = ("encode", "prefill", "decode") + (("talker",) if talker else ())
        self._sampler = sampler
        self._talker = talker
        self._pending = PendingTokens()
        self._open: set[int] = set()

    def open(self, slot: int) -> None:
        """Open a slot with initial state. Raises ValueError if it is open."""
        if slot in self._open:
            raise ValueError(f"slot {slot} is open already")
        self._open.add(slot)
        self._sampler.open(slot)
        if self._talker is not None:
            self._talker.open(slot)
        self.begin(slot)

    def close(self, slot: int) -> None:
        """Drop the state of a slot."""
        self._open.remove(slot)
        self._pending.drop(slot)
        self._sampler.close(slot)
        if self._talker is not None:
            self._talker.close(slot)
        self.end(slot)

    @torch.inference_mode()
    def frame(
        self,
        stack: CachedDecoder,
        slots: Sequence[int],
        audio: Sequence[Audio],
        tokens_out: Sequence[int],
        timer: StageTimer,
    ) -> Sequence[FrameReply]:
        """One frame of each slot; audio[i]: [samples of a frame]."""
        self.prepare(stack, slots, tokens_out)
        with timer("encode"):
            heard = self.encode(slots, audio)
        with timer("prefill"):
            before = prefill(stack, slots, self.prompt_rows(slots, heard))
        rules = self.replies(slots, tokens_out)
        with timer("decode"):
            decode_replies(stack, slots, before, rules, vocabulary=self.vocabulary, pick=self._sampler.pick)
        self.keep(slots, rules)
        silent: set[int] = set()
        if self._talker is not None:
            with timer("talker"):
                silent = self._synthesize(self._talker, slots, before, rules)
        return [
            FrameReply(() if slot in silent else rule.tokens) for slot, rule in zip(slots, rules, strict=True)
        ]

    def warm_up(self, slots: int) -> None:
        """Capture the talker's CUDA graphs for up to `slots` sessions. Does nothing on a CPU."""
        if self._talker is not None:
            self._talker.warm_up(slots)

    def pools(self) -> Mapping[str, PoolState]:
        """Pools beside the decoder's, by stage."""
        return {} if self._talker is None else {"talker": self._talker.pool()}

    def begin(self, slot: int) -> None:
        """Create the subclass's state of a slot."""
        return

    def end(self, slot: int) -> None:
        """Drop the subclass's state of a slot."""
        return

    def prepare(self, stack: CachedDecoder, slots: Sequence[int], tokens_out: Sequence[int]) -> None:
        """Update the subclass's state before the audio of a frame is encoded."""
        return

    def replies(self, slots: Sequence[int], tokens_out: Sequence[int]) -> Sequence[ReplyRule]:
        """Rule for the reply of each slot. By default `tokens_out[i]` tokens."""
        return [FixedLengthReply(wanted, feed_last=self._talker is not None) for wanted in tokens_out]

    def keep(self, slots: Sequence[int], rules: Sequence[ReplyRule]) -> None:
        """Keep what the next frame needs. By default the last token, unless it was fed for the talker."""
        if self._talker is None:
            self._pending.keep(slots, rules)

    def spoken(self, slot: int, before: Tensor, rule: ReplyRule) -> TalkerInput | None:
        """Text for the talker, None if the session does not speak. before: [hidden], state before the reply."""
        return None

    def ends_turn(self, rule: ReplyRule) -> bool:
        """True if a turn of speech is over after this reply."""
        return False

    @abstractmethod
    def positions(self, slot: int, tokens_out: int) -> int:
        """See `InteractionModel.positions`."""

    @abstractmethod
    def encode(self, slots: Sequence[int], audio: Sequence[Audio]) -> Sequence[Tensor] | Tensor:
        """Embeddings of the next frame of these slots, [n, hidden] each. Advances their state."""

    @abstractmethod
    def prompt_rows(self, slots: Sequence[int], heard: Sequence[Tensor] | Tensor) -> list[Tensor]:
        """Rows to prefill: [n, hidden] for each slot."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Adapter, weights, parameters outside the decoder's layers, bytes of state per session."""

    def _synthesize(
        self, talker: TalkerStage, slots: Sequence[int], before: Tensor, rules: Sequence[ReplyRule]
    ) -> set[int]:
        """Run the talker; return the slots that had no free block in its pool, which have no output."""
        speaking: dict[int, TalkerInput] = {}
        for slot, state, rule in zip(slots, before, rules, strict=True):
            text = self.spoken(slot, state, rule)
            if text is None:
                talker.end_turn(slot)
            else:
                speaking[slot] = text
        served = talker.speak(list(speaking), list(speaking.values()))
        for slot, rule in zip(slots, rules, strict=True):
            if slot in speaking and self.ends_turn(rule):
                talker.end_turn(slot)
        return set(speaking) - set(served)
