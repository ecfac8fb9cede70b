"""Charts and the memory of the live view, against curves whose course is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.ui.charts import bars, curve, grid, resample
from metronome_cli.ui.glyphs import ASCII, UNICODE
from metronome_cli.ui.history import MOST_SAMPLES, Sample, ViewHistory, clock_text, slope
from metronome_cli.ui.panels import LEAST_HEIGHT, arrange, panels_of
from tests.ui.demo import snapshot_at


def filled(rate, until, every=1.0):
    history = ViewHistory()
    for step in range(int(until / every)):
        history.sample(Sample(step * every, None, min(1.0, rate * step * every)))
    return history


@given(rate=st.floats(1e-4, 1e-2), share=st.floats(0.2, 0.9))
def test_the_countdown_of_a_pool_that_fills_evenly_is_exact(rate, share):
    history = filled(rate, share / rate, share / rate / 40)
    now = history.samples[-1].t_s
    assert history.full_in_s() == pytest.approx(1 / rate - now, rel=1e-6)


def test_a_pool_that_is_full_or_steady_has_no_countdown():
    assert filled(1.0, 40).full_in_s() is None
    assert filled(0.0, 40).full_in_s() is None
    assert ViewHistory().full_in_s() is None


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-5, 5)), max_size=20))
def test_a_slope_is_numpys(points):
    import numpy as np

    found = slope(points)
    xs = [x for x, _ in points]
    if found is not None and max(xs) - min(xs) > 1e-3:
        assert found == pytest.approx(np.polyfit(xs, [y for _, y in points], 1)[0], rel=1e-6, abs=1e-6)


def test_long_curves_keep_a_bounded_size_and_their_ends():
    history = filled(1e-6, 10 * MOST_SAMPLES)
    assert MOST_SAMPLES / 2 <= len(history.samples) <= MOST_SAMPLES
    assert history.samples[-1].t_s >= 10 * MOST_SAMPLES - 2**5


def test_a_clock_that_goes_back_begins_new_curves():
    history = ViewHistory()
    history.add(snapshot_at(0.8))
    history.add(snapshot_at(0.1))
    assert len(history.samples) == 1
    assert sum(history.counts) == 120


@given(st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=300), st.integers(1, 80))
def test_a_column_never_hides_the_largest_value(values, width):
    known = [value for value in values if value is not None]
    shown = [value for value in resample(values, width) if value is not None]
    if known and width <= len(values):
        assert max(shown) == max(known)
    assert len(resample(values, width)) == width


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@given(
    values=st.lists(st.none() | st.floats(0, 200), min_size=1, max_size=200),
    ahead=st.lists(st.floats(0, 100), max_size=50),
    width=st.integers(10, 120),
    height=st.integers(1, 30),
)
def test_a_curve_keeps_its_cells(glyphs, values, ahead, width, height):
    lines = curve(values, (width, height), 100.0, glyphs, limit=80.0, ahead=ahead)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)


def test_a_value_over_the_limit_reaches_its_line_and_one_below_does_not():
    low, high = (
        [line.plain for line in curve([value] * 20, (26, 10), 100.0, UNICODE, limit=80.0)]
        for value in (70.0, 90.0)
    )
    row = next(index for index, line in enumerate(low) if "80" in line)
    assert UNICODE.line in low[row]
    assert UNICODE.line not in high[row]


def test_bars_and_grids_fit():
    assert all(line.cell_len <= 30 for line in bars([("a", 9.0, ""), ("bb", 1000.0, "")], 30, UNICODE))
    assert len(grid([("x", "")] * 1000, (20, 5))) == 5


@given(width=st.integers(20, 250), height=st.integers(LEAST_HEIGHT, 60))
def test_panels_fill_their_area_and_no_more(width, height):
    history = ViewHistory()
    for share in (0.1, 0.2, 0.3):
        history.add(snapshot_at(share))
    history.say(1.0, "an event")
    lines = arrange(panels_of(history, snapshot_at(0.3), UNICODE), width, height, UNICODE)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)


@pytest.mark.parametrize(("seconds", "text"), [(114, "1:54"), (3730, "1:02:10"), (0.2, "0:00")])
def test_clocks(seconds, text):
    assert clock_text(seconds) == text
