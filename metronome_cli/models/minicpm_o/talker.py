"""Talkers of MiniCPM-o: text tokens and their states in, codec codes out, one second at a time.

4.5: each unit feeds, for every text token, its embedding plus the projected state after it (scaled to length 1),
then a beginning-of-audio; a unit without text feeds the marker alone. Then it samples 25 codes. Cache and positions
continue through a turn.

2.6: a turn begins with 303 positions: a start, the voice (the projected state before the first word,
scaled to length 1), 300 slots for text, a beginning-of-audio. Then 47 codes a second, in four groups.
Only text that is there when the turn begins is put in the slots: the authors' code rewrites cached slots
as text arrives, which changes what is said but neither the work nor the memory. The talker has a
tokenizer of its own; here the language model's token numbers are folded into its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from metronome_cli.engine.projection import Projection
from metronome_cli.engine.transfer import to_device
from metronome_cli.models.sampling import Sampler
from metronome_cli.models.talker.talker_stage import TalkerInput, TalkerTurn

RESERVED_TEXT = 300
_START, _EMPTY = 0, 0  # rows of the text table for the start and for slots without text


@dataclass(frozen=True, slots=True)
class TalkerHeadWeights:
    """text: [vocabulary, hidden]; codes: [groups, codes, hidden], the last code of a group is the end; heads:
    one a group; project: the language model's width to the talker's."""

    text: Tensor
    codes: Tensor
    heads: Sequence[Projection]
    first: Projection
    second: Projection

    def project(self, states: Tensor) -> Tensor:
        """[n, language width] -> [n, hidden], each of length 1."""
        return F.normalize(self.second(F.relu(self.first(states))), dim=-1)

    def embed_text(self, tokens: Sequence[int]) -> Tensor:
        """[n, hidden]; numbers beyond the table are folded into it."""
        ids = to_device(list(tokens), self.text.device)
        return self.text[ids % len(self.text)]


class _CodeTalkerHead:
    """What both versions share: codes in groups, each with a head and a table."""

    def __init__(self, weights: TalkerHeadWeights, sampler: Sampler, audio_bos: int) -> None:
        self._weights = weights
        self._sampler = sampler
        self._audio_bos = weights.embed_text([audio_bos])

    def open(self, slot: int) -> None:
        self._sampler.open(slot)

    def close(self, slot: int) -> None:
        self._sampler.close(slot)

    def follow(self, speeches: Sequence[TalkerTurn], codes: Tensor) -> Tensor:
        """codes: [batch, groups]; the sum of their embeddings."""
        groups = torch.arange(codes.shape[1], device=codes.device)
        return self._weights.codes[groups, codes].sum(1)

    def pick(self, slots: Sequence[int], hidden: Tensor) -> Tensor:
        """Sounds only: the end is left out, so a unit is always full."""
        picked = [self._sampler.pick(slots, head(hidden)[:, :-1]) for head in self._weights.heads]
        return torch.stack(picked, dim=1)

    def _left(self, speech: TalkerTurn) -> list[Tensor]:
        """The code of the frame before, which was not fed yet."""
        return [] if speech.codes is None else [self.follow([speech], speech.codes[None])]


class TalkerHead45(_CodeTalkerHead):
    """Version 4.5."""

    def lead(self, speech: TalkerTurn, heard: TalkerInput) -> Tensor:
        """The code left from the last unit, the text of this unit, and beginning-of-audio."""
        rows = self._left(speech)
        if len(heard.tokens):
            states = torch.stack(list(heard.states))
            rows.append(self._weights.embed_text(heard.tokens) + self._weights.project(states))
        return torch.cat([*rows, self._audio_bos])


class TalkerHead26(_CodeTalkerHead):
    """Version 2.6."""

    def lead(self, speech: TalkerTurn, heard: TalkerInput) -> Tensor:
        """A turn's 303 positions, or what was left."""
        if speech.codes is not None:
            return self._left(speech)[0]
        text = self._weights.embed_text(heard.tokens[:RESERVED_TEXT])
        empty = self._weights.embed_text([_EMPTY]).expand(RESERVED_TEXT - len(text), -1)
        voice = self._weights.project(heard.before[None])
        return torch.cat([self._weights.embed_text([_START]), voice, text, empty, self._audio_bos])
