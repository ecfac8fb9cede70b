"""Shares with neighbours that are not independent: the worked example, and coverage on a simulated process."""

from __future__ import annotations

import random

import pytest

from metronome_cli.measure.block_share import BlockShare, design_effect
from metronome_cli.measure.confidence import lower_bound, upper_bound


def test_one_hiccup_of_twenty_steps_counts_as_one() -> None:
    share = BlockShare(50.0)
    for step in range(600):
        share.add(float(step), int(100 <= step < 120))
    assert design_effect([20.0] + [0.0] * 11, [50.0] * 12) == pytest.approx(20.7, abs=0.05)
    assert share.effective() in ((1, 28), (1, 29)), "600 / deff is 29 up to rounding"
    assert lower_bound(1, 28, 0.999) == pytest.approx(0.00003, abs=0.00001)
    assert lower_bound(20, 600, 0.999) > 0.01, "as independent steps they would refute 1 %"


def test_without_a_bad_unit_nothing_is_taken_off() -> None:
    share = BlockShare()
    for step in range(459):
        share.add(step * 0.08, 0)
    assert share.effective() == (0, 459)


def test_listeners_of_one_period_count_as_one_observation() -> None:
    share = BlockShare()
    for step in range(500):
        share.add(step * 0.08, 0, 40)
    assert share.effective() == (0, 500)
    assert share.units == 20_000


def test_no_unit_is_no_share() -> None:
    assert BlockShare().share is None
    assert BlockShare().effective() == (0, 0)


def test_bursts_refute_a_limit_that_holds_no_oftener_than_stated() -> None:
    """Bad units come in bursts of 10; the true share is 5 %, and so is the limit."""
    rng = random.Random(5)
    wrong_fails = wrong_passes = 0
    for _ in range(400):
        share = BlockShare(10.0)
        left = 0
        for step in range(1000):
            if not left and rng.random() < 0.05 / 10 / 0.95:
                left = 10
            share.add(float(step) * 0.25, int(left > 0))
            left = max(0, left - 1)
        k, n = share.effective()
        wrong_fails += lower_bound(k, n, 0.99) > 0.05
        wrong_passes += upper_bound(k, n, 0.99) <= 0.05
    assert wrong_fails <= 12
    assert wrong_passes <= 28
