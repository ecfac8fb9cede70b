"""Draws among the likeliest k: the right tokens, in the right proportions, each session's its own."""

from __future__ import annotations

import torch
from torch import Tensor

from metronome_cli.models.moshi.frame_sampling import FrameSampler, TopKChoice

CPU = torch.device("cpu")
STEPS = 3


def sampler(temperature: float = 0.8, top_k: int = 5, seed: int = 1) -> FrameSampler:
    choice = TopKChoice(temperature, top_k)
    return FrameSampler(choice, choice, steps=STEPS, vocab=(20, 12), seed=seed, device=CPU)


def frame(picks: FrameSampler, slots: list[int], text: Tensor, codes: Tensor) -> Tensor:
    """[batch, 1 + steps] tokens of one frame on these logits."""
    picks.begin(slots)
    said = [picks.text(text), *(picks.code(step, codes) for step in range(STEPS))]
    return torch.stack(said, dim=1)


def logits(batch: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(batch, 20, generator=generator), torch.randn(batch, 12, generator=generator)


def test_proportions_are_those_of_the_softmax_over_the_top_k() -> None:
    picks, (text, codes) = sampler(), logits(1)
    picks.open(0)
    drawn = torch.cat([frame(picks, [0], text, codes) for _ in range(4000)])
    best, ids = codes[0].topk(5)
    expected = torch.zeros(12)
    expected[ids] = torch.softmax(best / 0.8, 0)
    shares = drawn[:, 1:].flatten().bincount(minlength=12) / (4000 * STEPS)
    assert torch.all((shares - expected).abs() <= 4 * (expected * (1 - expected) / 12000).sqrt())
    assert set(drawn[:, 0].unique().tolist()) == set(text[0].topk(5).indices.tolist())


def test_temperature_zero_is_the_likeliest_whatever_the_seed() -> None:
    text, codes = logits(4)
    picks = sampler(temperature=0.0)
    for slot in range(4):
        picks.open(slot)
    said = frame(picks, [0, 1, 2, 3], text, codes)
    assert torch.equal(said[:, 0], text.argmax(-1))
    assert torch.equal(said[:, 1], codes.argmax(-1))


def test_a_session_says_the_same_in_any_batch() -> None:
    text, codes = logits(3)
    together, alone = sampler(), sampler()
    for slot in (0, 1, 2):
        together.open(slot)
        alone.open(slot)
    both = [frame(together, [2, 0, 1], text, codes) for _ in range(4)]
    single = [frame(alone, [1], text[2:], codes[2:]) for _ in range(4)]
    assert torch.equal(torch.stack(both)[:, 2], torch.cat(single))


def test_sessions_and_seeds_differ() -> None:
    text, codes = (row.expand(2, -1) for row in logits(1))
    one, other = sampler(), sampler(seed=2)
    for picks in (one, other):
        picks.open(0)
        picks.open(1)
    first = torch.stack([frame(one, [0, 1], text, codes) for _ in range(8)])
    second = torch.stack([frame(other, [0, 1], text, codes) for _ in range(8)])
    assert not torch.equal(first[:, 0], first[:, 1])
    assert not torch.equal(first, second)


def test_a_top_k_of_more_than_there_is_draws_among_all() -> None:
    picks, (text, codes) = sampler(top_k=250), logits(1)
    picks.open(0)
    seen = torch.cat([frame(picks, [0], text * 0, codes * 0) for _ in range(300)])
    assert len(seen[:, 0].unique()) == 20
    assert len(seen[:, 1:].unique()) == 12
