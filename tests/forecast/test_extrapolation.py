"""Extrapolation of an occupancy trace, against traces of sessions that draw their turns."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from metronome_cli.forecast.extrapolation import FEWEST, Extrapolation, extrapolate, probability_by
from metronome_cli.forecast.occupancy_trace import OccupancyTrace, clean_trace

BLOCK = 16


def played(
    rng: np.random.Generator, sessions: int, length_s: float, period_s: float = 0.5, block: int = BLOCK
) -> OccupancyTrace:
    """Occupancy of a pool that is full after about `length_s`, up to that instant."""
    share, turn_s, heard, said = 0.5, float(rng.uniform(2, 10)), 14 * period_s, 25 * period_s
    fade = math.exp(-period_s / (turn_s * (1 - share)))
    frames = round(2.5 * length_s / period_s)
    speaking = rng.random((frames, sessions)) < share
    keep = rng.random((frames, sessions)) < fade
    for k in range(1, frames):
        speaking[k] = np.where(keep[k], speaking[k - 1], speaking[k])
    blocks = np.ceil(np.cumsum(heard + said * speaking, axis=0) / block).sum(axis=1)
    pool = sessions * (heard + said * share) / period_s * length_s / block
    full = int(np.argmax(blocks > pool))
    return OccupancyTrace(period_s * np.arange(1, full + 2), np.minimum(1.0, blocks[: full + 1] / pool))


@pytest.mark.parametrize("block", [BLOCK, 8 * BLOCK])
def test_thirty_percent_predict_the_rest(block: int) -> None:
    """Whether a session fills hundreds of blocks, or tens of them in steps."""
    rng, errors, held = np.random.default_rng(11), [], []
    for _ in range(200):
        trace = played(rng, int(rng.integers(16, 128)), float(rng.uniform(60, 300)), block=block)
        answer, truth = extrapolate(trace.first(0.3)), trace.t_s[-1]
        assert answer.t_sat_s is not None
        assert answer.low_s is not None
        errors.append(abs(answer.t_sat_s / truth - 1))
        held.append(answer.low_s <= truth <= (answer.high_s or math.inf))
    assert np.median(errors) < 0.02
    assert np.quantile(errors, 0.9) < 0.05
    assert 0.84 < np.mean(held) < 0.97


@given(rate=st.floats(1e-4, 2e-2), start=st.floats(0, 0.5), spacing=st.floats(0.1, 5))
@settings(deadline=None)
def test_a_straight_line_is_continued(rate: float, start: float, spacing: float) -> None:
    times = spacing * np.arange(40)
    levels = start + rate * times
    assume(levels[-1] < 0.99)
    answer = extrapolate(OccupancyTrace(times, levels))
    assert answer.t_sat_s == pytest.approx((1 - start) / rate, rel=1e-6)
    assert answer.high_s is not None
    assert answer.low_s is not None
    assert answer.high_s - answer.low_s == pytest.approx(spacing, rel=0.01)
    assert not answer.falling


@given(step_s=st.floats(2, 10), height=st.floats(0.02, 0.06), cut=st.floats(5, 8))
@settings(deadline=None)
def test_steps_are_continued_along_their_middle(step_s: float, height: float, cut: float) -> None:
    """Sessions all alike take each block together; wherever the trace is cut, half a step is all it is off."""
    times = np.arange(0, cut * step_s, 0.1)
    answer = extrapolate(OccupancyTrace(times, height * np.ceil(times / step_s)))
    assert answer.t_sat_s == pytest.approx((1 / height - 0.5) * step_s, rel=0.05)


@given(over=st.floats(0, 0.12), full_s=st.floats(30, 600))
@settings(deadline=None)
def test_sessions_may_come_one_by_one_at_the_beginning(over: float, full_s: float) -> None:
    """`over`: of the fitted time, in which the rate rises from 0 to what it then stays at."""
    times = np.linspace(0, 0.3 * full_s, 200)
    rates = np.minimum(1, times / (over * times[-1] + 1e-9)) / full_s
    levels = np.concatenate(([0], np.cumsum((rates[1:] + rates[:-1]) / 2 * np.diff(times))))
    answer = extrapolate(OccupancyTrace(times, levels))
    truth = times[-1] + (1 - levels[-1]) * full_s
    assert answer.t_sat_s == pytest.approx(truth, rel=0.025)


@given(idle_s=st.integers(1, 300), level=st.floats(0, 0.2))
@settings(deadline=None)
def test_idle_time_before_the_first_rise_changes_nothing(idle_s: int, level: float) -> None:
    rise = level + (0.9 - level) * played(np.random.default_rng(3), 20, 60).first(0.3).occupancy
    times = np.arange(len(rise)) / 2
    waited = np.concatenate((np.arange(-idle_s, 0) / 2, times))
    at_once = extrapolate(OccupancyTrace(times, rise))
    assert extrapolate(OccupancyTrace(waited, np.concatenate((np.full(idle_s, rise[0]), rise)))) == at_once


@given(scale=st.floats(0.1, 10), shift=st.floats(-1e4, 1e4), seed=st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_units_of_time_and_its_origin_do_not_matter(scale: float, shift: float, seed: int) -> None:
    trace = played(np.random.default_rng(seed), 20, 60).first(0.4)
    one, other = extrapolate(trace), extrapolate(OccupancyTrace(shift + scale * trace.t_s, trace.occupancy))
    for a, b in ((one.t_sat_s, other.t_sat_s), (one.low_s, other.low_s), (one.high_s, other.high_s)):
        assert a is not None
        assert b == pytest.approx(shift + scale * a, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    "levels",
    [
        np.full(60, 0.3),
        0.5 - 0.002 * np.arange(60),
        0.4 + 0.01 * np.random.default_rng(1).standard_normal(60),
    ],
    ids=["flat", "falling", "noise"],
)
def test_what_does_not_rise_does_not_saturate(levels: np.ndarray) -> None:
    answer = extrapolate(OccupancyTrace(np.arange(60.0), levels))
    assert answer.saturates is False
    assert answer.t_sat_s is None
    assert "does not rise" in answer.reason
    assert " % of the pool a second" in answer.reason
    assert "e-" not in answer.reason


def test_a_server_that_falls_behind_is_noticed_and_its_later_rate_followed() -> None:
    """Served rate sinks from 1 to 0.6 of the offered one over the run."""
    times = np.arange(0, 200, 0.5)
    levels = np.cumsum(0.004 * 0.5 * np.linspace(1, 0.6, len(times)))
    trace = OccupancyTrace(times, levels / levels[-1])
    early = trace.first(0.3)
    answer = extrapolate(early)
    assert answer.falling
    assert "slows down" in answer.reason
    naive = float(early.t_s[-1] + (1 - early.occupancy[-1]) * early.span_s / early.occupancy[-1])
    truth = float(trace.t_s[-1])
    assert answer.t_sat_s is not None
    assert naive < answer.t_sat_s < truth
    assert answer.high_s is None or answer.high_s > truth


def test_a_fill_that_speeds_up_is_noticed() -> None:
    times = np.arange(0, 100, 0.5)
    answer = extrapolate(OccupancyTrace(times, 0.5 * (times / 100) ** 1.5))
    assert not answer.falling
    assert re.search(r"speeds up, from 0\.\d+ to 0\.\d+ % of the pool a second", answer.reason)


def test_a_curve_that_levels_off_does_not_saturate() -> None:
    times = np.arange(0, 100, 0.5)
    answer = extrapolate(OccupancyTrace(times, np.minimum(0.5, times / 80)))
    assert answer.saturates is False


def test_a_full_pool_is_full_at_its_first_full_sample() -> None:
    answer = extrapolate(clean_trace([(t, min(1.0, t / 30)) for t in range(60)]))
    assert (answer.t_sat_s, answer.low_s, answer.high_s) == (30, 30, 30)


@given(st.integers(0, FEWEST - 1))
def test_too_few_samples_give_no_forecast(count: int) -> None:
    answer = extrapolate(clean_trace([(t, t / 100) for t in range(count)]))
    assert answer.saturates is None
    assert answer.t_sat_s is None


@given(st.floats(1, 1e4), st.floats(0.01, 0.9), st.floats(0.01, 3), st.floats(0, 1.2e5), st.floats(0, 1e3))
def test_a_probability_grows_with_time_and_meets_the_interval(
    full_s: float, below: float, above: float, t_s: float, later_s: float
) -> None:
    low_s, high_s = full_s * (1 - below), full_s * (1 + above)
    found = Extrapolation(True, "", full_s, low_s, high_s)
    ends = [probability_by(found, t) for t in (low_s, full_s, high_s)]
    assert ends == pytest.approx([0.05, 0.5, 0.95])
    assert 0 <= probability_by(found, t_s) <= probability_by(found, t_s + later_s) <= 1
    endless = Extrapolation(True, "", full_s, low_s, None)
    assert probability_by(endless, 2 * high_s) == 0.5
