"""What a search's wall time still affords."""

import time

import pytest

from metronome_cli.capacity import budget as module
from metronome_cli.capacity.budget import AUTO_BUDGET_S, Budget


class Clock:
    """Wall time that moves when it is told to."""

    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def look(budget, clock, seconds):
    with budget.looking():
        clock.now += seconds


def test_a_look_foretells_what_a_confirmation_takes(clock):
    budget = Budget(0.0, period_s=0.08, given_s=20.0)
    look(budget, clock, 2.0)
    budget.expect(times_as_long=5)
    assert budget.affords(looks=9)
    assert not budget.affords(looks=10)
    assert budget.affords(confirmations=1.5, looks=1)
    assert not budget.affords(confirmations=1.9)


def test_one_that_failed_early_does_not_make_the_next_look_short(clock):
    budget = Budget(0.0, period_s=0.08, given_s=40.0)
    look(budget, clock, 2.0)
    budget.expect(times_as_long=10)
    for seconds, affordable in ((1.0, 1), (25.0, 0)):
        with budget.confirming():
            clock.now += seconds
        assert budget.affords(confirmations=1) is bool(affordable)


@pytest.mark.parametrize(
    ("period_s", "total_s"), [(0.02, AUTO_BUDGET_S), (0.08, AUTO_BUDGET_S), (1.0, 500.0)]
)
def test_long_frames_are_given_more_time(clock, period_s, total_s):
    budget = Budget(0.0, period_s, given_s=None)
    clock.now = total_s
    assert budget.affords()
    clock.now = total_s + 0.001
    assert not budget.affords()


def test_time_before_the_search_counts():
    assert not Budget(time.perf_counter() - 10, period_s=0.08, given_s=5.0).affords()
