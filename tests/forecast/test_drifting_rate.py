"""Forecasts of fills whose rate drifts: the interval holds the truth, and steady fills lose little by it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from metronome_cli.forecast.drifting_rate import extrapolate_drifting, fill_time
from metronome_cli.forecast.occupancy_trace import FULL, OccupancyTrace, clean_trace
from metronome_cli.forecast.speaking_time import Reals

SPAN_S = 300.0
Rates = Callable[[Reals, np.random.Generator], Reals]
RATES: dict[str, Rates] = {
    "steady": lambda t, rng: np.ones_like(t),
    "falls in a line": lambda t, rng: np.maximum(0.15, 1 - rng.uniform(0.2, 0.6) * t),
    "contexts grow": lambda t, rng: 2 / (1 + rng.uniform(0.5, 3) * t),
    "falls to a floor": lambda t, rng: 2 * np.exp(-rng.uniform(0.3, 0.8) * t) + 0.2,
    "sessions join": lambda t, rng: 0.3 + rng.uniform(0.5, 2) * t,
    "wanders": lambda t, rng: np.maximum(
        0.1, np.exp(np.cumsum(rng.normal(0, rng.uniform(0.01, 0.025), len(t))))
    ),
}


def fill(kind: str, seed: int, *, blocks: int | None = None) -> OccupancyTrace:
    """A sample per second until the pool is full."""
    rng = np.random.default_rng(seed)
    t_s = np.arange(0.0, 6 * SPAN_S)
    mean = rng.uniform(1, 2) / SPAN_S
    rate = mean * RATES[kind](t_s / SPAN_S, rng)
    level = np.cumsum(np.maximum(0.0, rate + rng.normal(0, 0.002 * math.sqrt(mean), len(t_s))))
    if blocks is not None:
        level = np.floor(level * blocks) / blocks
    full = np.flatnonzero(level >= FULL)
    assert len(full)
    return OccupancyTrace(t_s[: full[0] + 1], np.minimum(level[: full[0] + 1], 1.0))


def forecasts(kind: str, seeds: range, blocks: int | None) -> list[tuple[float, float, float, float]]:
    """(truth, estimate, low, high) in seconds, at three moments of each fill, from the last 300 s."""
    made = []
    for seed in seeds:
        whole = fill(kind, seed, blocks=blocks)
        truth_s = float(whole.t_s[-1])
        for share in (0.3, 0.55, 0.8):
            now_s = share * truth_s
            seen = [
                (t, o) for t, o in zip(whole.t_s, whole.occupancy, strict=True) if now_s - 300 <= t <= now_s
            ]
            found = extrapolate_drifting(clean_trace(seen))
            ends = (found.t_sat_s, found.low_s, found.high_s)
            made.append((truth_s, *(math.inf if end is None else end for end in ends)))
    return made


def test_intervals_hold_at_least_as_often_as_85_in_100() -> None:
    """36 fills of known truth, smooth and in blocks, each forecast three times."""
    held, made = 0, 0
    for kind in RATES:
        each = [*forecasts(kind, range(3), None), *forecasts(kind, range(3, 6), 200)]
        holds = sum(low <= truth <= high for truth, _, low, high in each)
        assert holds >= 0.6 * len(each), f"{kind}: {holds} of {len(each)}"
        held, made = held + holds, made + len(each)
    assert held / made >= 0.85


def test_a_rate_that_falls_as_contexts_grow_is_not_called_early() -> None:
    """Median error of the time that is left, within a tenth; the secant alone is early."""
    errors = [estimate / truth - 1 for truth, estimate, _, _ in forecasts("contexts grow", range(6), None)]
    assert abs(float(np.median(errors))) < 0.1


def test_a_steady_fill_is_forecast_within_a_few_percent() -> None:
    made = forecasts("steady", range(6), None)
    assert max(abs(estimate / truth - 1) for truth, estimate, _, _ in made) < 0.05
    assert all(high < 1.5 * truth for truth, _, _, high in made)


def test_the_same_samples_give_the_same_forecast() -> None:
    trace = fill("wanders", 1).first(0.5)
    assert fill_time(trace) == fill_time(trace)


def test_the_rate_now_is_that_of_the_last_samples() -> None:
    """The rate doubled halfway; the forecast starts from the later one."""
    t_s = np.arange(0.0, 200.0)
    level = np.where(t_s < 100, 0.001 * t_s, 0.1 + 0.002 * (t_s - 100))
    assert fill_time(OccupancyTrace(t_s, level)).rate_per_s == pytest.approx(0.002, rel=0.15)


def test_a_pool_that_does_not_rise_is_not_forecast() -> None:
    t_s = np.arange(0.0, 100.0)
    found = extrapolate_drifting(OccupancyTrace(t_s, 0.5 + 0.001 * np.sin(t_s)))
    assert found.saturates is False
    assert found.t_sat_s is None
