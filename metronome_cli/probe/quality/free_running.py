"""Free run: a model decodes without turn ends, far past its window.

What: `sessions` sessions of one variant decode side by side from one prompt, at a temperature, tokens that
would end an answer being ruled out, as in a call without an end. Each stretch of `stretch` tokens is then
described by:

    repetition   share of its 4-grams that occurred within the `LOOKBACK` tokens before
    distinct-n   different n-grams over all n-grams of the stretch, n = 1 and 2
    entropy      mean entropy of the next token's distribution at temperature 1, in nats
    echo         share of its 4-grams that stand in what is pinned, the first S tokens of the session;
                 none if S is less than 4

Known error: one prompt and few sessions; the sampling differs from a deployment's own.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metronome_cli.probe.quality.subject import CacheVariant, ProbedModel
from metronome_cli.probe.quality.text_stream import ProgressCheck

GRAM = 4
LOOKBACK = 256
STRETCH = 128


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """One session's tokens, and the entropy in nats of the distribution that each was drawn from."""

    tokens: Sequence[int]
    entropy: Sequence[float]


@dataclass(frozen=True, slots=True)
class AgeBucket:
    """A stretch of free decoding, the mean over sessions. `start`: tokens decoded before it."""

    start: int
    repetition: float
    distinct_1: float
    distinct_2: float
    entropy: float
    echo: float | None


@torch.inference_mode()
def free_run(
    subject: ProbedModel,
    variant: CacheVariant,
    prompt: Sequence[int],
    tokens: int,
    *,
    sessions: int = 2,
    temperature: float = 0.8,
    seed: int = 0,
    watch: ProgressCheck = lambda done: True,
) -> list[GeneratedText]:
    """`tokens` tokens of each session; fewer if `watch` requested a stop. Temperature 0 always picks the likeliest
    token."""
    stack = subject.stack(variant, tokens=len(prompt) + tokens + 1, sessions=sessions, chunk=len(prompt))
    slots = list(range(sessions))
    generators = [torch.Generator().manual_seed(seed * 1_000_003 + slot) for slot in slots]
    barred = torch.tensor(sorted(subject.tokens.ends), dtype=torch.long)
    for slot in slots:
        stack.open(slot)
        stack.reserve(slot, len(prompt))
    embeds = subject.vocabulary.embed(prompt).to(stack.dtype).expand(sessions, -1, -1)
    hidden = stack.forward(slots, embeds, [len(prompt)] * sessions)
    said: list[list[int]] = [[] for _ in slots]
    entropy: list[list[float]] = [[] for _ in slots]
    for done in range(1, tokens + 1):
        logits = subject.vocabulary.logits(hidden).float().cpu()
        for slot, value in zip(slots, entropy_of(logits).tolist(), strict=True):
            entropy[slot].append(value)
        logits[:, barred] = -torch.inf
        picked = _pick(logits, temperature, generators)
        for slot, token in zip(slots, picked, strict=True):
            said[slot].append(token)
        if not watch(done) or done == tokens:
            break
        for slot in slots:
            stack.reserve(slot, 1)
        fed = subject.vocabulary.embed(picked)[:, None].to(stack.dtype)
        hidden = stack.forward(slots, fed, [1] * sessions)
    return [GeneratedText(*pair) for pair in zip(said, entropy, strict=True)]


def entropy_of(logits: Tensor) -> Tensor:
    """[n, vocab] -> entropy of each row's distribution, in nats, [n]."""
    log_p = torch.log_softmax(logits, 1)
    return -(log_p.exp() * log_p).sum(1)


def _pick(logits: Tensor, temperature: float, generators: Sequence[torch.Generator]) -> list[int]:
    if temperature == 0.0:
        likeliest: list[int] = logits.argmax(1).tolist()
        return likeliest
    shares = torch.softmax(logits / temperature, 1)
    return [
        int(torch.multinomial(row, 1, generator=generator))
        for row, generator in zip(shares, generators, strict=True)
    ]


def age_buckets(
    said: Sequence[GeneratedText], pinned: Sequence[int], stretch: int = STRETCH
) -> list[AgeBucket]:
    """Whole stretches only, each the mean over sessions. `pinned`: the prompt, or as much of it as S keeps;
    `pinned_of` adds what the model decoded."""
    whole = min((len(one.tokens) for one in said), default=0) // stretch
    return [_stretch(said, pinned, number * stretch, stretch) for number in range(whole)]


def _stretch(said: Sequence[GeneratedText], pinned: Sequence[int], start: int, length: int) -> AgeBucket:
    parts = [one.tokens[start : start + length] for one in said]
    echoes = [_echo(part, pinned) for part in parts]
    known = [echo for echo in echoes if echo is not None]
    return AgeBucket(
        start=start,
        repetition=statistics.fmean(repetition(one.tokens, start, length) for one in said),
        distinct_1=statistics.fmean(distinct(part, 1) for part in parts),
        distinct_2=statistics.fmean(distinct(part, 2) for part in parts),
        entropy=statistics.fmean(statistics.fmean(one.entropy[start : start + length]) for one in said),
        echo=statistics.fmean(known) if known else None,
    )


def ngrams(tokens: Sequence[int], n: int) -> list[tuple[int, ...]]:
    """Every n-gram, in order."""
    return [tuple(tokens[at : at + n]) for at in range(len(tokens) - n + 1)]


def distinct(tokens: Sequence[int], n: int) -> float:
    """Different n-grams over all: 1 if none occurs twice or there is none."""
    found = ngrams(tokens, n)
    return len(set(found)) / len(found) if found else 1.0


def repetition(tokens: Sequence[int], start: int, length: int) -> float:
    """Share of the 4-grams that end in [start, start + length) and occurred within `LOOKBACK` before."""
    seen_at: dict[tuple[int, ...], int] = {}
    again = total = 0
    for at, gram in enumerate(ngrams(tokens[: start + length], GRAM)):
        if at + GRAM > start:
            total += 1
            again += at - seen_at.get(gram, -LOOKBACK - 1) <= LOOKBACK
        seen_at[gram] = at
    return again / total if total else 0.0


def _echo(tokens: Sequence[int], pinned: Sequence[int]) -> float | None:
    kept, found = set(ngrams(pinned, GRAM)), ngrams(tokens, GRAM)
    if not kept or not found:
        return None
    return sum(gram in kept for gram in found) / len(found)
