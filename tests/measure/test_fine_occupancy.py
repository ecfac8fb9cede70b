"""A trial's own trace of occupancy: as fine as its period, bounded however long it is."""

from __future__ import annotations

import itertools

import pytest

from metronome_cli.measure.fine_occupancy import MOST, FineOccupancy


@pytest.mark.parametrize(("period_s", "every_s"), [(0.08, 0.08), (0.48, 0.48), (2.0, 1.0)])
def test_a_point_per_period_or_second(period_s: float, every_s: float) -> None:
    fine = FineOccupancy.of_period(period_s)
    for step in range(20_000):
        fine.add(0.001 * step, step / 20_000)
    times = [t_s for t_s, _ in fine.points]
    assert min(b - a for a, b in itertools.pairwise(times)) == pytest.approx(every_s, abs=0.001)
    assert len(times) == pytest.approx(20 / every_s, abs=2)


def test_a_long_trial_is_thinned_and_keeps_its_shape() -> None:
    fine = FineOccupancy.of_period(0.08)
    for step in range(100_000):
        fine.add(0.08 * step, step / 100_000)
    assert len(fine.points) <= MOST
    assert fine.points[0] == (0.0, 0.0)
    assert fine.points[-1][0] > 0.99 * 8000
    assert all(level == pytest.approx(t_s / 8000) for t_s, level in fine.points)
