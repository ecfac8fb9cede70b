"""Percentiles are within a quarter of a percent, ordered, and None without data."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.measure.histogram import LatencyHistogram


def filled(values):
    histogram = LatencyHistogram()
    for value in values:
        histogram.add(value)
    return histogram


def test_empty_has_no_percentile_and_no_maximum():
    assert LatencyHistogram().percentile(0.5) is None
    assert LatencyHistogram().max_ms is None


@given(
    st.lists(st.floats(0.002, 1e5), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0])
)
def test_percentile_is_the_nearest_rank_within_its_resolution(values, q):
    exact = sorted(values)[max(0, math.ceil(q * len(values) - 1e-9) - 1)]
    assert filled(values).percentile(q) == pytest.approx(exact, rel=0.0026)


@given(st.lists(st.floats(-5, 1e7), min_size=1, max_size=300))
def test_percentiles_are_ordered_and_below_the_maximum(values):
    histogram = filled(values)
    p50, p90, p99 = (histogram.percentile(q) for q in (0.5, 0.9, 0.99))
    assert p50 <= p90 <= p99 <= max(values) or max(values) <= 1e-3
