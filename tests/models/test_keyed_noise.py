"""Hashed noise is exponential, independent across sessions, draws and columns, and blind to the batch."""

from __future__ import annotations

import torch
from scipy import stats

from metronome_cli.models.keyed_noise import exponential


def test_it_is_exponential_by_row_and_by_column() -> None:
    drawn = exponential(torch.arange(2000) << 24, 50)
    for sample in (drawn[0:40].flatten(), drawn[:, 7], drawn[:, 49]):
        assert stats.kstest(sample.numpy(), "expon").pvalue > 1e-4
    assert bool((drawn > 0).all())


def test_neighbouring_draws_sessions_and_columns_are_not_correlated() -> None:
    keys = (torch.arange(300)[:, None] << 24) + torch.arange(4)
    drawn = exponential(keys.flatten(), 40).view(300, 4, 40)
    pairs = ((drawn[:-1], drawn[1:]), (drawn[:, :-1], drawn[:, 1:]), (drawn[..., :-1], drawn[..., 1:]))
    for one, other in pairs:
        both = torch.stack((one.flatten(), other.flatten()))
        assert abs(float(torch.corrcoef(both)[0, 1])) < 5 / both.shape[1] ** 0.5


def test_a_session_draws_the_same_in_any_batch() -> None:
    assert torch.equal(exponential(torch.tensor([5, 9]), 12)[1], exponential(torch.tensor([9]), 12)[0])


def test_a_race_is_won_by_the_shares() -> None:
    shares = torch.tensor([0.5, 0.3, 0.15, 0.05])
    winners = (shares.log() - exponential(torch.arange(20_000), 4).log()).argmax(1)
    counts = torch.bincount(winners, minlength=4)
    assert stats.chisquare(counts.numpy(), (shares * 20_000).numpy()).pvalue > 1e-4
