"""A timeline of any length takes bounded room, evenly spaced, and loses neither a peak nor a count."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.report.conditions import notes
from metronome_cli.results.measured import Window
from metronome_cli.results.timeline import MOST_WINDOWS, WindowTimeline, downsample
from tests.report.builders import capacity_report

latencies = st.lists(st.none() | st.floats(0, 1e6), max_size=600)


def window(index, latency):
    return Window(
        t_s=float(index + 1),
        occupancy=(index % 97) / 97,
        running=3,
        waiting=index % 5,
        sessions=3,
        p50_ms=latency,
        p99_ms=latency,
        max_ms=latency,
        frames=7,
        misses=index % 3,
        empty_frames=index % 2,
    )


def grown(windows, most):
    timeline = WindowTimeline(most)
    for each in windows:
        timeline.add(each)
    return timeline


@given(latencies, st.integers(2, 40))
def test_peaks_and_sums_are_those_of_all_windows(latencies, most):
    windows = [window(index, latency) for index, latency in enumerate(latencies)]
    for kept in (grown(windows, most).windows, downsample(windows, most)):
        assert sum(w.frames for w in kept) == sum(w.frames for w in windows)
        assert sum(w.misses for w in kept) == sum(w.misses for w in windows)
        assert sum(w.empty_frames for w in kept) == sum(w.empty_frames for w in windows)
        known = [latency for latency in latencies if latency is not None]
        assert max((w.max_ms for w in kept if w.max_ms is not None), default=None) == max(known, default=None)
        assert max((w.waiting for w in kept), default=0) == max((w.waiting for w in windows), default=0)
        assert [w.t_s for w in kept] == sorted(w.t_s for w in kept)
        assert not windows or kept[-1].t_s == windows[-1].t_s


@given(st.integers(0, 3000), st.integers(2, 40))
def test_entries_are_as_many_as_asked_for_at_most_and_stand_for_equally_many(count, most):
    timeline = grown([window(index, 1.0) for index in range(count)], most)
    assert len(timeline.windows) <= most + most % 2
    assert all(w.frames == 7 * timeline.each for w in timeline.windows[:-1])
    assert timeline.each == 1 or math.log2(timeline.each).is_integer()


def test_up_to_the_bound_nothing_is_merged():
    windows = [window(index, float(index)) for index in range(999)]
    assert grown(windows, MOST_WINDOWS).windows == windows
    assert grown(windows, MOST_WINDOWS).each == 1


@pytest.mark.parametrize(("each", "said"), [(1, False), (4, True)])
def test_a_report_says_where_windows_were_merged(each, said):
    report = capacity_report()
    report.capacity.trials[0].windows_merged = each
    assert any("windows in one" in note for note in notes(report)) == said


def test_a_warm_up_adds_no_counts_to_those_that_it_is_merged_with():
    warm_up = window(0, 500.0).model_copy(update={"warm_up": True, "misses": 5, "occupancy": 0.9})
    merged = downsample([warm_up, window(1, 10.0)], 1)[0]
    assert (merged.frames, merged.misses, merged.max_ms, merged.occupancy) == (7, 1, 10.0, 0.9)
    assert not merged.warm_up
    assert downsample([warm_up, warm_up], 1)[0].warm_up
