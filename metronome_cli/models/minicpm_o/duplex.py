"""MiniCPM-o 4.5's listen-or-speak decision: the tokens with which a unit is answered, and when it ends.

A unit's first token decides: `<|listen|>` ends it at once, anything else is speech. Speech ends at
`<|chunk_eos|>` or `<|chunk_tts_eos|>`; the last of 20 slots is always `<|chunk_eos|>`. `<|turn_eos|>` is
fed like a word and marks the turn over. While a turn is open `<|listen|>` becomes `<|tts_bos|>`. The
token that ends a unit is not fed at once: it goes with `</unit>` before the next unit, as in the authors'
code, so an answer need not wait for it.

With random weights the load's turn schedule decides: a frame that asks for more tokens than a listening one is
spoken, with that many tokens. With a checkpoint the model decides.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from torch import Tensor

from metronome_cli.engine.failures import check_sampled

SLOTS = 20  # tokens of a unit at most, the last of them <|chunk_eos|>
_WINDOW = 512  # tokens that the repetition penalty looks back on


@dataclass(frozen=True, slots=True)
class UnitIds:
    """Numbers of the special tokens, as published for 4.5."""

    unit: int = 151683
    unit_end: int = 151684
    audio_start: int = 151697
    audio_end: int = 151699
    tts_bos: int = 151703
    listen: int = 151705
    speak: int = 151706
    turn_eos: int = 151717
    chunk_eos: int = 151718
    chunk_tts_eos: int = 151721
    tts_pad: int = 151722

    @classmethod
    def read(cls, folder: Path) -> UnitIds:
        """The numbers of a checkpoint's added_tokens.json; the published ones where it has none."""
        path = folder / "added_tokens.json"
        added = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        known = {f.name: added[_SPELLING[f.name]] for f in fields(cls) if _SPELLING[f.name] in added}
        return cls(**known)

    def within(self, vocab: int) -> UnitIds:
        """All of them below `vocab`: a scaled-down model's last tokens take their place."""
        highest = max(getattr(self, f.name) for f in fields(self))
        down = max(0, highest + 1 - vocab)
        return UnitIds(**{f.name: max(0, getattr(self, f.name) - down) for f in fields(self)})

    @property
    def ends(self) -> tuple[int, int, int]:
        """Tokens that end a unit."""
        return self.listen, self.chunk_eos, self.chunk_tts_eos


_SPELLING: Mapping[str, str] = {
    "unit": "<unit>",
    "unit_end": "</unit>",
    "audio_start": "<|audio_start|>",
    "audio_end": "<|audio_end|>",
    "tts_bos": "<|tts_bos|>",
    "listen": "<|listen|>",
    "speak": "<|speak|>",
    "turn_eos": "<|turn_eos|>",
    "chunk_eos": "<|chunk_eos|>",
    "chunk_tts_eos": "<|chunk_tts_eos|>",
    "tts_pad": "<|tts_pad|>",
}


@dataclass(slots=True)
class ScheduledUnit:
    """A unit scheduled by the load: `<|listen|>` alone, or `slots` tokens from `<|speak|>` to `<|chunk_eos|>`."""

    ids: UnitIds
    slots: int
    speaks: bool
    tokens: list[int] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)  # after each token that was fed

    @property
    def wants_more(self) -> bool:
        return len(self.tokens) < self.slots

    def accept(self, token: int) -> bool:
        last = len(self.tokens) == self.slots - 1
        if last:
            token = self.ids.chunk_eos if self.speaks else self.ids.listen
        elif not self.tokens:
            token = self.ids.speak
        self.tokens.append(token)
        return not last

    @property
    def turn_over(self) -> bool:
        """A plan ends a turn by listening."""
        return not self.speaks


@dataclass(slots=True)
class ModelDecidedUnit:
    """A unit by the model's own decision. `open_turn`: the turn that it began in is not over."""

    ids: UnitIds
    open_turn: bool
    tokens: list[int] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    ended: bool = False
    turn_over: bool = False

    @property
    def speaks(self) -> bool:
        return bool(self.tokens) and self.tokens[0] != self.ids.listen

    @property
    def wants_more(self) -> bool:
        return not self.ended

    def accept(self, token: int) -> bool:
        if len(self.tokens) == SLOTS - 1:
            token = self.ids.chunk_eos
        elif token == self.ids.listen and (self.open_turn or self.tokens):
            token = self.ids.tts_bos
        self.tokens.append(token)
        self.ended = token in self.ids.ends
        self.turn_over = self.turn_over or token in (self.ids.turn_eos, self.ids.listen)
        return not self.ended


DuplexUnit = ScheduledUnit | ModelDecidedUnit


class DuplexSampler:
    """The authors' sampling: a first draw may end the unit; else a penalised, trimmed one picks a word.

    Each session draws from a generator of its own. `temperature` 0 takes the likeliest both times.
    """

    top_k, top_p = 20, 0.8
    repetition, turn_end = 1.05, 1.1

    def __init__(self, ids: UnitIds, seed: int, temperature: float = 0.7) -> None:
        self._ids = ids
        self._seed = seed
        self._temperature = temperature
        self._opened = 0
        self._generators: dict[int, torch.Generator] = {}
        self._history: dict[int, deque[int]] = {}

    def open(self, slot: int) -> None:
        self._generators[slot] = torch.Generator().manual_seed(self._seed * 1_000_003 + self._opened)
        self._history[slot] = deque(maxlen=_WINDOW)
        self._opened += 1

    def close(self, slot: int) -> None:
        del self._generators[slot], self._history[slot]

    def pick(self, slots: Sequence[int], logits: Tensor) -> Tensor:
        """logits: [batch, vocab] -> tokens [batch]."""
        logits = logits.float()
        check_sampled(logits, logits.argmax(-1))
        first = self._draw(slots, logits.softmax(-1))
        sampled = self._draw(slots, self._chances(slots, logits.clone()))
        tokens = torch.where(first == self._ids.chunk_eos, first, sampled)
        for slot, token in zip(slots, tokens.tolist(), strict=True):
            self._history[slot].append(token)
        return tokens

    def _chances(self, slots: Sequence[int], logits: Tensor) -> Tensor:
        logits[:, [self._ids.chunk_eos, self._ids.tts_pad]] = float("-inf")
        for row, slot in enumerate(slots):
            seen = torch.tensor(sorted(set(self._history[slot])), dtype=torch.long, device=logits.device)
            logits[row, seen] = _weakened(logits[row, seen], self.repetition)
        turn = logits[:, self._ids.turn_eos]
        logits[:, self._ids.turn_eos] = _weakened(turn, self.turn_end)
        logits /= self._temperature or 1.0
        kept, order = logits.topk(min(self.top_k, logits.shape[1]), dim=-1)
        chances = kept.softmax(-1)
        chances[chances.cumsum(-1) - chances > self.top_p] = 0.0
        return torch.zeros_like(logits).scatter_(1, order, chances)

    def _draw(self, slots: Sequence[int], chances: Tensor) -> Tensor:
        """Exponential races: argmax(p / e) is a draw by p."""
        if self._temperature == 0.0:
            return chances.argmax(-1)
        size = chances.shape[1]
        races = torch.stack([torch.empty(size).exponential_(generator=self._generators[s]) for s in slots])
        return (chances / races.to(chances.device)).argmax(-1)


def _weakened(logits: Tensor, penalty: float) -> Tensor:
    return torch.where(logits > 0, logits / penalty, logits * penalty)
