"""Traces are cleaned with everything odd said, or refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.occupancy_trace import clean_trace

levels = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@given(levels)
def test_a_clean_rising_trace_comes_through_whole(values: list[float]) -> None:
    samples = [(float(i), value) for i, value in enumerate(sorted(values))]
    trace = clean_trace(samples)
    assert list(zip(trace.t_s, trace.occupancy, strict=True)) == samples
    assert trace.notes == ()


@given(levels, st.lists(st.sampled_from([None, math.nan, math.inf]), min_size=1, max_size=5))
def test_values_that_are_no_numbers_are_gaps_and_said(values: list[float], bad: list[float | None]) -> None:
    good: list[tuple[float, float | None]] = [(float(i), v) for i, v in enumerate(sorted(values))]
    samples = good + [(len(good) + float(i), v) for i, v in enumerate(bad)]
    trace = clean_trace(samples)
    assert len(trace) == len(good)
    assert f"{len(bad)} of {len(samples)}" in trace.notes[0]


def test_only_what_follows_the_last_fall_counts() -> None:
    trace = clean_trace([(0, 0.5), (1, 0.6), (2, 0.1), (3, 0.2), (4, 0.0), (5, 0.1)])
    assert list(trace.t_s) == [4, 5]
    assert "fell from 0.600 to 0.000 at 2.0 s" in trace.notes[-1]


def rise_and_end(every_s: float) -> list[tuple[float, float | None]]:
    """A rise of 60 s, then sessions that leave one after the other within 1.5 s, then 1 s of an empty pool."""
    times = [k * every_s for k in range(int(62.5 / every_s))]
    return [(t, 0.01 * t if t <= 60 else max(0.0, 0.6 - (t - 60) * 0.4)) for t in times]


@pytest.mark.parametrize("every_s", [0.08, 0.5, 1.0])
def test_the_end_of_a_run_is_not_its_trend(every_s: float) -> None:
    trace = clean_trace(rise_and_end(every_s))
    assert trace.t_s[-1] == pytest.approx(60, abs=1.01)
    assert trace.occupancy[-1] > 0.58
    assert "sessions left" in trace.notes[-1]


def test_a_live_trace_goes_on_after_a_fall() -> None:
    trace = clean_trace(rise_and_end(0.5), live=True)
    assert trace.t_s[0] > 60
    assert trace.occupancy[0] < 0.1


def test_a_fall_in_small_steps_is_one() -> None:
    fine: list[tuple[float, float | None]] = [(0.1 * k, 0.01 * k) for k in range(50)]
    fine += [(5 + 0.1 * k, 0.5 - 0.025 * k) for k in range(20)]
    fine += [(7 + 0.1 * k, 0.01 * k) for k in range(50)]
    trace = clean_trace(fine)
    assert trace.t_s[0] == pytest.approx(7, abs=0.1)


def test_gaps_in_time_are_said() -> None:
    trace = clean_trace([(t, t / 1000) for t in [*range(10), *range(40, 50)]])
    assert trace.notes == ("no samples from 9.0 to 40.0 s",)


def test_of_one_instant_the_last_sample_counts() -> None:
    trace = clean_trace([(0, 0.1), (1, 0.2), (1, 0.21), (2, 0.3)])
    assert list(trace.occupancy) == [0.1, 0.21, 0.3]
    assert trace.notes[0] == "share their instant with a later sample, and are left out: 1"


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([(0.0, 0.1), (2.0, 0.2), (1.0, 0.3)], "time goes back at sample 3"),
        ([(0.0, 0.1), (None, 0.2)], "sample 2 has no finite time"),
        ([(math.nan, 0.1)], "sample 1 has no finite time"),
        ([(0.0, 42.0)], "occupancy 42 at 0 s lies outside"),
        ([(0.0, -0.5)], "outside 0..1"),
    ],
)
def test_what_cannot_be_read_is_refused(samples: list[tuple[float | None, float]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        clean_trace(samples)


def test_parts_of_a_trace() -> None:
    trace = clean_trace([(10 + t, t / 50) for t in range(51)])
    assert trace.full_at_s == 60
    assert trace.rise().t_s[-1] == 60
    assert trace.first(0.3).t_s[-1] == 25
    assert clean_trace([]).span_s == 0
