"""The fit gives back a surface that was made from known costs, and reads flat where it is."""

import numpy as np
import pytest

from metronome_cli.measure.surface import Cost, fit, slope


def made(fixed, each, token, noise=0.0, ages=((60, 300), (600, 3000), (3600, 18000))):
    rng = np.random.default_rng(0)
    return [
        Cost(n, age, resident, (fixed + n * (each + token * resident)) * (1 + noise * rng.standard_normal()))
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
    windowed = slope(made(0.004, 0.0005, 2e-8, ages=((60, 273), (3600, 273))), noise=0.0)
    growing = slope(made(0.004, 0.0005, 2e-8), noise=0.01)
    assert windowed.flat
    assert not growing.flat
    assert growing.sessions == 16
    assert slope(made(0.004, 0.0005, 2e-8, ages=((60, 300),)), noise=0.0) is None
