"""Intervals hold their value, shrink with data, and say nothing where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.probe.quality.interval import Estimate, mean_of, mean_of_stretches, share_of


def width(found: Estimate | None) -> float:
    assert found is not None
    return found.high - found.low


@given(st.integers(0, 200), st.integers(1, 200))
def test_a_share_lies_in_its_interval(hits: int, total: int) -> None:
    hits = min(hits, total)
    found = share_of(hits, total)
    assert found is not None
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_no_data_has_no_interval() -> None:
    assert share_of(0, 0) is None
    assert mean_of([]) is None
    assert mean_of([1.0]) is None
    assert mean_of_stretches([]) is None
    assert mean_of_stretches([[1.0] * 100]) is None


@pytest.mark.parametrize("alike", [8, 300])
def test_a_mean_is_covered_as_often_as_is_claimed(alike: int) -> None:
    """The 90 % interval of values of which `alike` neighbours go together holds the true mean that often."""
    held = 0
    for seed in range(80):
        steps = np.random.default_rng(seed).normal(size=12_800 + alike)
        found = mean_of_stretches([np.convolve(steps, np.ones(alike), "valid")])
        assert found is not None
        held += found.low <= 0 <= found.high
    assert held >= 64


def test_a_few_values_claim_little() -> None:
    """Two blocks that happen to agree roughly are no proof."""
    pair = mean_of([0.0, 0.02])
    many = mean_of([0.0, 0.02] * 20)
    assert width(pair) > 10 * width(many)


def test_more_data_narrows_a_mean() -> None:
    values = np.random.default_rng(0).normal(size=64 * 400)
    assert width(mean_of_stretches([values])) < width(mean_of_stretches([values[: 64 * 10]]))


@given(st.lists(st.integers(0, 700), min_size=1, max_size=6))
def test_every_token_counts_once_however_it_is_cut(lengths: list[int]) -> None:
    rng = np.random.default_rng(sum(lengths))
    stretches = [rng.normal(size=length) for length in lengths]
    found = mean_of_stretches(stretches)
    if found is None:
        assert sum(lengths) < 128
    else:
        assert found.value == pytest.approx(np.concatenate(stretches).mean())
        assert found.low <= found.value <= found.high
