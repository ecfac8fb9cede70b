"""What a search's wall time still affords."""

import pytest

from metronome_cli.capacity.time_budget import DEFAULT_S, TimeBudget


@pytest.mark.parametrize(
    ("period_s", "total_s"), [(0.02, DEFAULT_S), (0.08, DEFAULT_S), (2.0, 25 * DEFAULT_S)]
)
def test_longer_periods_get_more_time(period_s, total_s):
    assert TimeBudget(0.0, period_s, None).total_s == pytest.approx(total_s)


def test_what_is_left_falls_with_the_clock():
    now = [3.0]
    budget = TimeBudget(1.0, 0.08, 10.0, now=lambda: now[0])
    assert budget.left_s == pytest.approx(8.0)
    now[0] = 20.0
    assert budget.left_s == pytest.approx(-9.0)
