"""A small decoder with seeded weights that stands in for a trained one, and a tokenizer of whole words."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from metronome_cli.config.model_shape import ModelShape
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.projection import Projection
from metronome_cli.models.decoding import Vocabulary
from metronome_cli.probe.quality.subject import ProbedModel

SHAPE = ModelShape(
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    hidden_size=32,
    intermediate_size=48,
    vocab_size=64,
    dtype="float32",
    context_length=512,
)
END = 1


class ToyTokens:
    """Implements `quality.tokens.Tokens`: a word is the sum of its letters."""

    ends = frozenset({END})

    def encode(self, text: str) -> list[int]:
        return [2 + sum(map(ord, word)) % (SHAPE.vocab_size - 2) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(f"w{token}" for token in ids)

    def turn(self, question: str, *, first: bool) -> list[int]:
        return ([0] if first else []) + self.encode(question)

    def around(self, question: str, *, first: bool) -> tuple[list[int], list[int]]:
        return ([0] if first else []), [*self.encode(question), 3]

    def answer(self, text: str) -> list[int]:
        return [*self.encode(text), END]

    def between(self) -> list[int]:
        return [0]


def toy_subject(seed: int = 3, sharpness: float = 3.0) -> ProbedModel:
    """A subject whose predictions follow what it attends to: `sharpness` scales its logits."""
    decoder = DecoderWeights.random(SHAPE, seed)
    assert decoder.embedding is not None
    generator = torch.Generator().manual_seed(seed + 1)
    head = (
        torch.randn(SHAPE.vocab_size, SHAPE.hidden_size, generator=generator)
        * sharpness
        / SHAPE.hidden_size**0.5
    )
    vocabulary = Vocabulary(decoder.embedding, Projection(head))
    return ProbedModel(
        "toy", "toy weights", decoder, vocabulary, ToyTokens(), SHAPE.context_length, 2 * 2 * 2 * 8 * 4
    )


def stream_of(subject: ProbedModel, length: int, seed: int = 5) -> list[int]:
    """Tokens that the unbounded subject itself drew, so that it predicts them better than a guess."""
    from metronome_cli.probe.quality.free_running import free_run
    from metronome_cli.probe.quality.subject import UNBOUNDED

    said = free_run(subject, UNBOUNDED, [0, 5, 9], length - 3, sessions=1, temperature=1.0, seed=seed)
    return [0, 5, 9, *said[0].tokens]
