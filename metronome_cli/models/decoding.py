"""Decodes a batch of sessions, each with its own rule for its reply in one frame.

Rows leave the batch as they finish. A `ReplyRule` accepts tokens until the reply of one session and frame is
complete. `FixedLengthReply` asks for a number of tokens, which is how a load drives a model with random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from metronome_cli.engine.interface import CachedDecoder
from metronome_cli.engine.projection import Projection
from metronome_cli.engine.transfer import to_device


class SlotSampler(Protocol):
    """Samples tokens, with state per slot."""

    def open(self, slot: int) -> None: ...

    def close(self, slot: int) -> None: ...

    def pick(self, slots: Sequence[int], logits: Tensor) -> Tensor: ...


class ReplyRule(Protocol):
    """Rule for the reply of one session in one frame."""

    tokens: list[int]
    states: list[Tensor]  # after each token that was fed, [hidden] each

    @property
    def wants_more(self) -> bool:
        """True if another token is needed."""

    def accept(self, token: int) -> bool:
        """Accept the sampled token, or replace it. Returns True if it is fed back in this frame."""


@dataclass(slots=True)
class FixedLengthReply:
    """Reply of `wanted` tokens. The last one is fed back if `feed_last`, else with the next frame."""

    wanted: int
    feed_last: bool = False
    tokens: list[int] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)  # after each token that was fed

    @property
    def wants_more(self) -> bool:
        return len(self.tokens) < self.wanted

    def accept(self, token: int) -> bool:
        self.tokens.append(token)
        return self.feed_last or len(self.tokens) < self.wanted


@dataclass(slots=True)
class Vocabulary:
    """embedding: [vocab, hidden]; head: hidden -> vocab."""

    embedding: Tensor
    head: Projection

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """[len(tokens), hidden]."""
        return self.embedding[to_device(list(tokens), self.embedding.device)]

    def logits(self, hidden: Tensor) -> Tensor:
        """[batch, hidden] -> [batch, vocab], in the embedding's type."""
        return self.head(hidden.to(self.embedding.dtype))


@dataclass(slots=True)
class PendingTokens:
    """Last token of each slot's frame, to be fed at the start of its next frame."""

    _tokens: dict[int, int] = field(default_factory=dict)

    def positions(self, slot: int, into: int, tokens_out: int) -> int:
        """What a frame of `into` embeddings and `tokens_out` tokens appends."""
        return (slot in self._tokens) + into + max(0, tokens_out - 1)

    def take(self, slots: Sequence[int], vocabulary: Vocabulary) -> Sequence[Tensor]:
        """Remove and return each slot's token as an embedding: [1, hidden], or [0, hidden] if there is none."""
        waits = [slot in self._tokens for slot in slots]
        rows = vocabulary.embed([self._tokens.pop(slot) for slot in compress(slots, waits)])
        return torch.split(rows, [int(one) for one in waits])

    def keep(self, slots: Sequence[int], rules: Sequence[ReplyRule]) -> None:
        """Keep the last token of each slot that replied."""
        self._tokens.update(
            (slot, rule.tokens[-1]) for slot, rule in zip(slots, rules, strict=True) if rule.tokens
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
    rules: Sequence[ReplyRule],
    *,
    vocabulary: Vocabulary,
    pick: SampleTokens,
) -> None:
    """Decode until every rule is complete. hidden: [batch, hidden], the state before each first token."""
    rows = [row for row, rule in enumerate(rules) if rule.wants_more]
    hidden = hidden[rows]
    while rows:
        picked = pick([slots[row] for row in rows], vocabulary.logits(hidden)).tolist()
        rows = [row for row, token in zip(rows, picked, strict=True) if rules[row].accept(token)]
        if not rows:
            return
        embeds = vocabulary.embed([rules[row].tokens[-1] for row in rows])
        hidden = stack.forward([slots[row] for row in rows], embeds[:, None].to(stack.dtype), [1] * len(rows))
        for row, state in zip(rows, hidden, strict=True):
            rules[row].states.append(state)
        going = [at for at, row in enumerate(rows) if rules[row].wants_more]
        rows, hidden = [rows[at] for at in going], hidden[going]
