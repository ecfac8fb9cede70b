"""Decoding for a batch of sessions, each with its own rule of what it says and when it stops.

Rows leave the batch as they finish. A `Speaker` is one session's rule for one frame; `Counted` says a
number of tokens, which is how a load plan drives a model whose words mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from metronome_cli.core.types import Audio
from metronome_cli.engine.interface import CachedDecoder
from metronome_cli.engine.projection import Projection


@dataclass(frozen=True, slots=True)
class Spoken:
    """One slot's frame: implements `models.base.ModelOutput`."""

    tokens: Sequence[int]
    audio: Audio | None = None


class ReplyRule(Protocol):
    """One session's rule in one frame."""

    @property
    def wants(self) -> bool:
        """Whether it goes on decoding."""

    def hear(self, token: int) -> bool:
        """Take the token that was picked, or another in its place; whether it is to be fed back now."""

    @property
    def said(self) -> int:
        """The token taken last."""

    def fed(self, hidden: Tensor) -> None:
        """The state after that token was fed, [hidden]."""


@dataclass(slots=True)
class FixedLengthReply:
    """Says `wanted` tokens. The last one is fed back only if `feed_last`, else it waits for the next
    frame."""

    wanted: int
    feed_last: bool = False
    tokens: list[int] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)  # after each token that was fed

    @property
    def wants(self) -> bool:
        return len(self.tokens) < self.wanted

    @property
    def said(self) -> int:
        return self.tokens[-1]

    def hear(self, token: int) -> bool:
        self.tokens.append(token)
        return self.feed_last or len(self.tokens) < self.wanted

    def fed(self, hidden: Tensor) -> None:
        self.states.append(hidden)


@dataclass(slots=True)
class Vocabulary:
    """embedding: [vocab, hidden]; head: hidden -> vocab."""

    embedding: Tensor
    head: Projection

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """[len(tokens), hidden]."""
        return self.embedding[torch.tensor(tokens, dtype=torch.long, device=self.embedding.device)]

    def logits(self, hidden: Tensor) -> Tensor:
        """[batch, hidden] -> [batch, vocab], in the embedding's type."""
        return self.head(hidden.to(self.embedding.dtype))


@dataclass(slots=True)
class PendingTokens:
    """The last token of each slot's frame, where it waits to be fed at the start of the next one."""

    _tokens: dict[int, int] = field(default_factory=dict)

    def positions(self, slot: int, into: int, tokens_out: int) -> int:
        """What a frame of `into` embeddings and `tokens_out` tokens appends."""
        return (slot in self._tokens) + into + max(0, tokens_out - 1)

    def take(self, slots: Sequence[int], words: Vocabulary) -> Sequence[Tensor]:
        """Each slot's token, embedded: [1, hidden], or [0, hidden] where none waits. They wait no longer."""
        waits = [slot in self._tokens for slot in slots]
        rows = words.embed([self._tokens.pop(slot) for slot in compress(slots, waits)])
        return torch.split(rows, [int(one) for one in waits])

    def keep(self, slots: Sequence[int], said: Sequence[FixedLengthReply]) -> None:
        """What these slots said last, where they said anything."""
        self._tokens.update(
            (slot, speaker.said) for slot, speaker in zip(slots, said, strict=True) if speaker.tokens
        )

    def drop(self, slot: int) -> None:
        self._tokens.pop(slot, None)


SampleTokens = Callable[[Sequence[int], Tensor], Tensor]  # slots, logits [batch, vocab] -> tokens [batch]


def prefill(stack: CachedDecoder, slots: Sequence[int], rows: Sequence[Tensor]) -> Tensor:
    """Feed rows of different lengths, [n, hidden] each; the state after each one's last, [batch, hidden]."""
    counts = [len(row) for row in rows]
    return stack.forward(slots, pad_sequence(list(rows), batch_first=True).to(stack.dtype), counts)


def decode_replies(
    stack: CachedDecoder,
    slots: Sequence[int],
    hidden: Tensor,
    speakers: Sequence[ReplyRule],
    *,
    words: Vocabulary,
    pick: SampleTokens,
) -> None:
    """Decode until no speaker wants more. hidden: [batch, hidden], each one's state before its first
    token."""
    rows = [row for row, speaker in enumerate(speakers) if speaker.wants]
    hidden = hidden[rows]
    while rows:
        picked = pick([slots[row] for row in rows], words.logits(hidden)).tolist()
        rows = [row for row, token in zip(rows, picked, strict=True) if speakers[row].hear(token)]
        if not rows:
            return
        embeds = words.embed([speakers[row].said for row in rows])
        hidden = stack.forward([slots[row] for row in rows], embeds[:, None].to(stack.dtype), [1] * len(rows))
        for row, state in zip(rows, hidden, strict=True):
            speakers[row].fed(state)
        going = [at for at, row in enumerate(rows) if speakers[row].wants]
        rows, hidden = [rows[at] for at in going], hidden[going]
