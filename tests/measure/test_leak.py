"""Leak per cycle: the worked examples, scipy's Theil-Sen slope as a peer, and exact coverage."""

from __future__ import annotations

import random

import pytest
from scipy.stats import theilslopes

from metronome_cli.measure.leak import slope_per_cycle

RISING = [0.020, 0.031, 0.029, 0.052, 0.047, 0.071, 0.068, 0.090]
FLAT = [0.020, 0.021, 0.019, 0.020, 0.022, 0.020, 0.019, 0.021]


def test_the_worked_example_of_a_leak() -> None:
    leak = slope_per_cycle(RISING)
    assert leak.estimate == pytest.approx(0.0098, abs=5e-5)
    assert (leak.low, leak.high) == pytest.approx((0.0045, 0.0143), abs=5e-5)
    assert leak.estimate == pytest.approx(theilslopes(RISING)[0])


def test_the_worked_example_of_none() -> None:
    leak = slope_per_cycle(FLAT)
    assert leak.estimate == pytest.approx(0.0, abs=1e-9)
    assert (leak.low, leak.high) == pytest.approx((-0.001, 0.001), abs=2e-4)


def test_six_cycles_are_the_fewest() -> None:
    assert slope_per_cycle(RISING[:5]).low is None
    assert slope_per_cycle(RISING[:6]).low is not None
    assert slope_per_cycle(RISING[:1]).estimate is None


def test_the_interval_holds_the_true_slope_as_often_as_stated() -> None:
    rng = random.Random(4)
    held = 0
    for _ in range(1500):
        found = slope_per_cycle([0.003 * c + rng.gauss(0, 0.01) for c in range(9)], 0.95)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.003 <= found.high
    assert held / 1500 >= 0.94
