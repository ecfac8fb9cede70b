"""The numbers that a verdict rests on, against their definitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from metronome_cli.measure.confidence import batches_needed, binomial_interval, lower_bound, upper_bound


@pytest.mark.parametrize(("share", "steps"), [(0.01, 459), (0.001, 4603), (0.5, 7)])
def test_steps_without_a_bad_one_that_prove_a_share_at_99_percent(share, steps):
    assert batches_needed(share) == steps
    assert upper_bound(0, steps) <= share < upper_bound(0, steps - 1)


@given(st.integers(0, 40), st.integers(1, 400))
def test_bounds_invert_the_binomial_tail(bad, extra):
    total = bad + extra
    upper = upper_bound(bad, total)
    assert binom.cdf(bad, total, upper) == pytest.approx(0.01, abs=1e-6)
    lower = lower_bound(bad, total)
    assert lower <= bad / total <= upper
    if bad:
        assert binom.sf(bad - 1, total, lower) == pytest.approx(0.01, abs=1e-6)


def test_no_data_proves_nothing():
    assert upper_bound(0, 0) == 1.0
    assert lower_bound(0, 0) == 0.0
    assert upper_bound(5, 5) == 1.0


def test_two_sided_interval_covers_the_paper_coin_flip():
    low, high = binomial_interval(14, 20, 0.90)
    assert low < 0.7 < high
    assert math.isclose(low, 0.4922, abs_tol=1e-3)
    assert math.isclose(high, 0.8604, abs_tol=1e-3)
