"""The fit gives back a surface that was made from known costs, and reads flat where it is."""

import numpy as np
import pytest

from metronome_cli.measure.cost_surface import CostPoint, fit, slope


def made(fixed, each, token, noise=0.0, ages=((60, 300), (600, 3000), (3600, 18000))):
    rng = np.random.default_rng(0)
    return [
        CostPoint(
            n, age, resident, (fixed + n * (each + token * resident)) * (1 + noise * rng.standard_normal())
        )
        for n in (1, 4, 16)
        for age, resident in ages
    ]


def test_fit_returns_what_made_the_points():
    surface = fit(made(0.004, 0.0005, 2e-8))
    assert surface.fixed_s == pytest.approx(0.004, rel=1e-6)
    assert surface.per_session_s == pytest.approx(0.0005, rel=1e-6)
    assert surface.per_token_s == pytest.approx(2e-8, rel=1e-6)
    assert surface.spread < 1e-6
    assert surface.step_s(8, 1000) == pytest.approx(0.004 + 8 * (0.0005 + 2e-5))


def test_the_deadline_limited_n_is_the_last_that_fits():
    surface = fit(made(0.004, 0.0005, 2e-8))
    n = surface.sessions_within(0.080, 18000)
    assert surface.step_s(n, 18000) <= 0.080 < surface.step_s(n + 1, 18000)
    assert surface.sessions_within(0.001, 0) == 0


def test_costs_never_come_out_negative():
    surface = fit(made(0.0, 0.001, 0.0, noise=0.05))
    assert min(surface.fixed_s, surface.per_session_s, surface.per_token_s) >= 0


def test_two_points_are_too_few():
    assert fit(made(0.004, 0.0005, 2e-8)[:2]) is None


def test_a_window_reads_flat_and_a_growing_cache_does_not():
    rng = np.random.default_rng(0)
    spell = np.repeat([1.0, 6.0, 1.0], 5)  # the machine is six times slower for a while, for both
    young, old = (spell * (1 + 0.02 * rng.standard_normal(15)) for _ in range(2))
    assert slope(16, young, old).flat is True
    assert slope(16, young, 1.4 * old).flat is False
    assert slope(16, young, 1.4 * old).ratio == pytest.approx(1.4, rel=0.03)


def test_steps_that_vary_too_much_leave_it_open():
    rng = np.random.default_rng(1)
    young, old = (rng.lognormal(0, 0.8, 15) for _ in range(2))
    assert slope(16, young, old).flat is None
    assert slope(16, young[:4], old[:4]) is None


def test_the_interval_of_a_ratio_holds_it_as_often_as_is_claimed():
    held = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = slope(1, rng.lognormal(0, 0.5, 15), 1.3 * rng.lognormal(0, 0.5, 15))
        held += found.low <= 1.3 <= found.high
    assert held >= 176
