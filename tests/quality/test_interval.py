"""Intervals hold their value, shrink with data, and say nothing where there is none."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.quality.interval import mean_of, share_of


@given(st.integers(0, 200), st.integers(1, 200))
def test_a_share_lies_in_its_interval(hits: int, total: int) -> None:
    hits = min(hits, total)
    found = share_of(hits, total)
    assert found is not None
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_no_data_has_no_interval() -> None:
    assert share_of(0, 0) is None
    assert mean_of([]) is None
    assert mean_of([1.0] * 100, block=64) is None


def test_a_mean_is_covered_as_often_as_is_claimed() -> None:
    """The 90 % interval of correlated values holds the true mean in most of 60 draws."""
    held = 0
    for seed in range(60):
        steps = np.random.default_rng(seed).normal(size=6400)
        found = mean_of(np.convolve(steps, np.ones(8) / 8, "same"), seed=seed)
        assert found is not None
        held += found.low <= 0 <= found.high
    assert held >= 46


def test_more_data_narrows_a_mean() -> None:
    values = np.random.default_rng(0).normal(size=64 * 400)
    few, many = mean_of(values[: 64 * 10]), mean_of(values)
    assert few is not None
    assert many is not None
    assert many.high - many.low < few.high - few.low
