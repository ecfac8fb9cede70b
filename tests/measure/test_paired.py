"""Paired differences: the worked example, exact coverage, and what too few pairs say."""

from __future__ import annotations

import random

import pytest

from metronome_cli.measure.paired import differences, is_repeatable, median_interval

ADDED_MS = [40, 55, 60, 62, 70, 75, 80, 90, 95, 110, 130, 400]


def test_the_worked_example() -> None:
    added = median_interval(ADDED_MS)
    assert (added.estimate, added.low, added.high) == (77.5, 55, 130)
    assert median_interval([*ADDED_MS[:-1], 4_000_000]).high == 130, "one outlier moves no end"


def test_fewer_than_eight_pairs_have_no_interval() -> None:
    assert median_interval(ADDED_MS[:7]).low is None
    assert (median_interval(ADDED_MS[:8]).low, median_interval(ADDED_MS[:8]).high) == (40, 90)
    assert median_interval([]).estimate is None


@pytest.mark.parametrize("n", [8, 12, 25])
def test_the_interval_holds_the_true_median_as_often_as_stated(n: int) -> None:
    rng = random.Random(n)
    held = 0
    for _ in range(3000):
        found = median_interval([rng.expovariate(1.0) for _ in range(n)], 0.9)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.6931 <= found.high
    assert held / 3000 >= 0.885


def test_a_turn_answered_in_one_pass_only_is_no_pair() -> None:
    assert differences({0: 1.0, 1: 2.0, 3: 1.0}, {0: 1.5, 2: 9.0, 3: 1.2}) == pytest.approx([0.5, 0.2])


def test_two_passes_alone_must_agree() -> None:
    assert is_repeatable({0: 1.0, 1: 1.1}, {0: 1.02, 1: 1.09})
    assert is_repeatable({0: 1.0}, {0: 1.5}) is False
    assert is_repeatable({0: 1.0}, {1: 1.0}) is None
