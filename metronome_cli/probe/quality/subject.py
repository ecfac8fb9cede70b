"""The model whose quality is probed: a decoder with real weights, its vocabulary, and its tokenizer.

Random weights are refused: they predict every text equally badly, so a window would cost nothing and the
answer would be wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from metronome_cli.config.cache_policy import CachePolicySpec, SinkPositions
from metronome_cli.core.errors import UsageError
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.models.weights.model_files import find_model, read_config, read_decoder, shape_of
from metronome_cli.probe.quality.tokenizer import Tokenizer, read_tokens

if TYPE_CHECKING:
    from metronome_cli.engine.decoder_weights import DecoderWeights
    from metronome_cli.engine.paged_decoder import PagedDecoder
    from metronome_cli.models.decoding import Vocabulary

BLOCK_TOKENS = 16
RANDOM_REFUSED = "quality needs a model's real weights: random ones predict every text equally badly"


@dataclass(frozen=True, slots=True)
class CacheVariant:
    """Cache policy of a variant, and the positions of its sinks. `str` is how reports name it."""

    policy: CachePolicySpec
    sink_positions: SinkPositions = "rolling"

    @property
    def resident(self) -> int:
        """Tokens kept of an old session; 0 if the cache is unbounded."""
        return self.policy.window + self.policy.sinks

    @property
    def bounded(self) -> bool:
        return self.policy.kind != "unbounded"

    def __str__(self) -> str:
        absolute = self.policy.sinks and self.sink_positions == "absolute"
        return f"{self.policy}, absolute" if absolute else str(self.policy)


UNBOUNDED = CacheVariant(CachePolicySpec("unbounded"))


@dataclass(frozen=True, slots=True)
class ProbedModel:
    """A decoder to ask. `context`: positions that it was trained for."""

    name: str
    source: str
    decoder: DecoderWeights | Any
    vocabulary: Vocabulary
    tokens: Tokenizer
    context: int
    kv_bytes_per_token: int

    def stack(self, variant: CacheVariant, *, tokens: int, sessions: int = 1, chunk: int = 1) -> PagedDecoder:
        """A fresh stack with room for `sessions` of up to `tokens` positions under that variant."""
        held = min(tokens, variant.resident + 1) + chunk if variant.bounded else tokens
        blocks = sessions * (-(-held // BLOCK_TOKENS) + 3)
        return build_decoder(
            self.decoder,
            blocks=blocks,
            block_tokens=BLOCK_TOKENS,
            policy=variant.policy,
            sink_positions=variant.sink_positions,
            chunk=chunk,
        )

    def bytes_per_session(self, variant: CacheVariant) -> int | None:
        """Cache of an old session, whole blocks; None if it grows without bound."""
        if not variant.bounded:
            return None
        sinks = -(-variant.policy.sinks // BLOCK_TOKENS)
        window = (
            -(-(variant.policy.window + 1) // BLOCK_TOKENS) + 1
        )  # a window seldom starts at a block's start
        return (sinks + window) * BLOCK_TOKENS * self.kv_bytes_per_token


def load_subject(model: str, device: str) -> ProbedModel:
    """A decoder from a directory, a GGUF file or the local cache.

    Raises UsageError if there is none, or if it has no tokenizer.
    """
    found = find_model(model)
    shape = shape_of(read_config(found), found)
    decoder, vocabulary = read_decoder(found, torch.device(device))
    width = torch.tensor([], dtype=vocabulary.embedding.dtype).element_size()
    return ProbedModel(
        name=found.name,
        source=found.name,
        decoder=decoder,
        vocabulary=vocabulary,
        tokens=read_tokens(found),
        context=shape.need("context_length"),
        kv_bytes_per_token=2 * shape.layers * shape.kv_heads * shape.head_dim * width,
    )


def refuse_untrained(mean_loss: float, subject: ProbedModel) -> None:
    """Raises UsageError for weights that predict a text no better than an even guess over the vocabulary.

    mean_loss: nats a token of the unbounded model on that text.
    """
    even = math.log(len(subject.vocabulary.embedding))
    if not mean_loss < 0.9 * even:
        raise UsageError(
            f"{subject.source} predicts the text no better than a guess ({mean_loss:.1f} nats a token; "
            f"an even guess has {even:.1f}): {RANDOM_REFUSED}",
            hint="give a trained checkpoint, and a text in a language that it knows",
        )
