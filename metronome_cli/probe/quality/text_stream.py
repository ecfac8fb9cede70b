"""How well a text is predicted as a session ages: one stream, every token scored by those before it.

What: the negative log likelihood, in nats, of each token of a given text under one variant, the text being
fed once from its beginning without a break (teacher forcing), so the window slides past its start many times.
Left out: the first token, which nothing precedes. Perplexity of a stretch is exp(mean of its losses).
Known error: tokens are fed in chunks of up to `CHUNK`, and rolling sinks stand for all of a chunk where its
last token has them, up to `chunk - 1` positions nearer than one token at a time would have them; chunks are at
most an eighth of the window to keep that small. A probe of one token at a time agrees (tests/quality).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from metronome_cli.engine.paged_decoder import PagedDecoder
from metronome_cli.models.decoding import Vocabulary
from metronome_cli.probe.quality.subject import BLOCK_TOKENS, CacheVariant, ProbedModel

CHUNK = 32
Losses = npt.NDArray[np.float64]
ProgressCheck = Callable[[int], bool]  # tokens done so far -> whether to go on


def chunk_of(variant: CacheVariant, most: int = CHUNK) -> int:
    """Tokens a forward."""
    return max(1, min(most, variant.policy.window // 8)) if variant.bounded else most


def stream_losses(
    subject: ProbedModel, variant: CacheVariant, ids: Sequence[int], watch: ProgressCheck = lambda done: True
) -> Losses:
    """[len(ids) - 1] losses in nats: entry i is that of token i + 1. Shorter if `watch` requested a stop."""
    chunk = chunk_of(variant)
    stack = subject.stack(variant, tokens=len(ids) + chunk, chunk=chunk)
    stack.open(0)
    found = []
    for at in range(0, len(ids) - 1, chunk):
        given = ids[at : min(at + chunk, len(ids) - 1)]
        stack.reserve(0, len(given))
        found.append(score(stack, subject.vocabulary, given, ids[at + 1 : at + 1 + len(given)]))
        if not watch(at + len(given)):
            break
    return np.concatenate(found) if found else np.empty(0)


def losses_at_age(subject: ProbedModel, variant: CacheVariant, ids: Sequence[int], age: int) -> Losses:
    """Losses of a session whose age is set, not waited for: [len(ids) - 1 - head] in nats.

    The sinks (and at least a block) are fed at the beginning; then the session is as old as `age` and the
    rest of the text fills an empty window there. So positions are those of that age, while the window's
    tokens know nothing of what a real session would have heard: the losses of its first W tokens are those
    of a window that fills, and those after it of one that slides. Raises ValueError for an unbounded variant.
    """
    chunk, head = chunk_of(variant), max(variant.policy.sinks, BLOCK_TOKENS)
    stack = subject.stack(variant, tokens=len(ids) + age + head, chunk=max(chunk, head))
    stack.open(0)
    stack.reserve(0, head)
    score(stack, subject.vocabulary, ids[:head], ids[1 : head + 1])
    stack.skip(0, age)
    found = []
    for at in range(head, len(ids) - 1, chunk):
        given = ids[at : min(at + chunk, len(ids) - 1)]
        stack.reserve(0, len(given))
        found.append(score(stack, subject.vocabulary, given, ids[at + 1 : at + 1 + len(given)]))
    return np.concatenate(found)


@torch.inference_mode()
def score(
    stack: PagedDecoder, vocabulary: Vocabulary, given: Sequence[int], next_ids: Sequence[int]
) -> Losses:
    """Feed `given` to slot 0; the losses of the token after each of them, in nats."""
    states = stack.states(0, vocabulary.embed(given).to(stack.dtype))
    return losses_of(vocabulary.logits(states), next_ids)


def losses_of(logits: Tensor, ids: Sequence[int]) -> Losses:
    """logits [n, vocab] and the n tokens that came -> -log p of each, [n], computed in float32."""
    wanted = torch.tensor(ids, device=logits.device)[:, None]
    full = logits.float()
    losses = torch.logsumexp(full, 1) - full.gather(1, wanted)[:, 0]
    return losses.double().cpu().numpy()
