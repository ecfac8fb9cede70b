"""Wake-ups are planned, and their lateness does not add up."""

from __future__ import annotations

import pytest

from metronome_cli.measure.timer_latency import clock_step_ns, measure_wakeups


class Machine:
    """A clock that sleep moves, each time `late_s` too far; every reading costs a nanosecond."""

    def __init__(self, *late_s: float) -> None:
        self.at_s = 100.0
        self._late_s = list(late_s)

    def now(self) -> float:
        self.at_s += 1e-9
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds + (self._late_s.pop(0) if self._late_s else 0.0)


def test_one_late_wake_up_does_not_move_the_next() -> None:
    machine = Machine(0.0, 500e-6, 0.0, 0.0)
    measured = measure_wakeups(4, 0.001, now=machine.now, sleep=machine.sleep)
    assert measured.max_us == pytest.approx(500, abs=0.1)
    assert measured.avg_us == pytest.approx(125, abs=0.1)
    assert measured.min_us == pytest.approx(0, abs=0.1)


def test_instants_that_passed_during_a_long_sleep_are_late_too() -> None:
    machine = Machine(0.0025)
    measured = measure_wakeups(4, 0.001, now=machine.now, sleep=machine.sleep)
    assert measured.avg_us == pytest.approx((2500 + 1500 + 500) / 4, abs=0.1)


def test_the_order_of_the_figures_on_this_machine() -> None:
    measured = measure_wakeups(20, 0.0005)
    assert 0 <= measured.min_us <= measured.avg_us <= measured.max_us
    assert measured.min_us <= measured.p99_us <= measured.max_us
    assert measured.resolution_ns > 0


def test_the_least_step_of_a_clock() -> None:
    assert clock_step_ns(Machine().now, 5) == pytest.approx(1, rel=0.1)


def test_no_wake_up_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        measure_wakeups(0)
