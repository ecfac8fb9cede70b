"""One place counts: every frame and batch once, silence by what was owed, sessions by how they ended."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.core.session import (
    BacklogReported,
    FrameBatch,
    FrameResult,
    Reconnected,
    SessionEnded,
    SessionSpec,
    SessionStarted,
)
from metronome_cli.measure.recorder import Recorder, SecondSeries

LATENCIES = st.lists(st.lists(st.floats(0.5, 300.0), min_size=1, max_size=6), min_size=1, max_size=40)


def frame(session, due_s, latency_ms=10.0, expected=1, delivered=1):
    return FrameResult(session, due_s, due_s + latency_ms / 1e3, expected, delivered)


def recorder_of(batches_ms, recorder=None):
    recorder = recorder or Recorder(80.0, [50.0, 80.0])
    for index, latencies_ms in enumerate(batches_ms):
        due_s = 0.08 * index
        recorder.record(FrameBatch([frame(n, due_s, latency) for n, latency in enumerate(latencies_ms)]))
    return recorder


@given(LATENCIES)
def test_the_whole_is_the_sum_of_windows_of_seconds_and_of_batches(batches_ms):
    recorder = Recorder(80.0, [50.0, 80.0])
    recorder_of(batches_ms[:7], recorder)
    first = recorder.close_window()
    recorder_of(batches_ms[7:], recorder)
    second, evidence = recorder.close_window(), recorder.evidence(6)
    total = evidence.total
    for name in ("frames", "batches", "misses", "frames_sq", "owed", "empty", "late_batches"):
        assert getattr(first, name) + getattr(second, name) == getattr(total, name)
    assert sum(second.frames for second in evidence.seconds) == total.frames
    assert sum(second.late for second in evidence.seconds) == total.misses
    assert sum(point.frames for point in evidence.batches) == total.frames
    assert [sum(s.over[place] for s in evidence.seconds) for place in (0, 1)] == total.over
    assert total.over[0] >= total.over[1] == total.misses


@given(st.lists(st.floats(0, 40), min_size=1, max_size=60), st.integers(4, 9))
def test_a_series_in_bounded_space_loses_nothing(times, most):
    series = SecondSeries(1, most)
    for done_s in sorted(times):
        series.add(done_s, [done_s, 1.0], 1, [1], 2, 1)
    series.close()
    assert len(series.entries) <= most
    assert sum(entry.frames for entry in series.entries) == 2 * len(times)
    assert max(entry.max_ms for entry in series.entries) == max(1.0, *times)
    starts = [entry.t_s for entry in series.entries]
    assert starts == sorted(set(starts))
    assert all(start % series.each_s == 0 for start in starts)


def test_listening_is_no_silence_and_one_empty_frame_after_it_is_none_yet():
    """Five seconds in which nothing was owed, then one empty frame: nothing is said of a collapse."""
    recorder = recorder_of([[5.0]] * 10)
    for k in range(63):
        recorder.record(FrameBatch([frame(0, 0.8 + 0.08 * k, expected=0, delivered=0)]))
    recorder.record(FrameBatch([frame(0, 5.9, delivered=0)]))
    assert not recorder.collapsed(6.0)
    assert not recorder.collapsed(7.8)
    assert recorder.collapsed(5.9 + 2.0)


def test_output_of_one_session_ends_the_silence_of_all():
    recorder = Recorder(80.0)
    recorder.record(FrameBatch([frame(0, 1.0, delivered=0), frame(1, 1.0, delivered=0)]))
    recorder.record(FrameBatch([frame(0, 2.0, delivered=0), frame(1, 2.0)]))
    assert not recorder.collapsed(10.0)


def test_a_session_without_output_for_the_silence_timeout_completed_silent():
    recorder = Recorder(80.0, period_s=0.08)
    for index in range(2):
        recorder.opened(SessionSpec(0.0, index=index))
        recorder.record(SessionStarted(index, 0.1))
    for k in range(40):
        recorder.record(FrameBatch([frame(0, 0.08 * k, delivered=0), frame(1, 0.08 * k)]))
    for index in range(2):
        recorder.record(SessionEnded(index, "completed", at_s=3.2))
    assert recorder.ended == {"completed_silent": 1, "completed": 1}
    assert (recorder.lost, len(recorder.active)) == (0, 0)


def test_an_end_counts_once_and_its_seconds_every_time():
    recorder = Recorder(80.0)
    recorder.opened(SessionSpec(0.0, index=3))
    recorder.record(SessionEnded(3, "connection_closed", "code 1006", at_s=2.0))
    recorder.record(SessionEnded(3, "shed", at_s=2.5, sent_s=2.0, received_s=1.5))
    assert recorder.ended == {"connection_closed": 1}
    assert (recorder.lost, recorder.details, recorder.sent_s) == (1, {"connection_closed": "code 1006"}, 2.0)
    assert recorder.first_ended_s == {"connection_closed": 2.0}


def test_a_reset_restarts_frames_and_streaks_and_keeps_sessions_and_stalls():
    recorder = Recorder(80.0)
    recorder.opened(SessionSpec(0.0))
    recorder_of([[90.0]] * 5, recorder)
    recorder.stalled_s = 1.0
    recorder.reset()
    recorder_of([[90.0]] * 2, recorder)
    assert (recorder.miss_streak_max, recorder.total.frames, recorder.stalled_s) == (2, 2, 1.0)
    assert list(recorder.active) == [0]


def test_a_delay_of_the_generator_is_taken_off_twice_for_the_counterfactual():
    recorder = Recorder(80.0, [80.0])
    recorder.record(FrameBatch([frame(0, 0.0, 150.0), frame(1, 0.0, 120.0)], late_s=0.03, delay_s=0.03))
    total = recorder.total
    assert (total.misses, total.misses_anyway, total.over, total.over_anyway) == (2, 1, [2], [1])
    assert total.max_anyway_ms == pytest.approx(90.0)


def test_what_is_sent_on_its_own_counts_even_without_an_answer():
    recorder = Recorder(80.0)
    recorder.record(FrameBatch([], sent_late_s=[0.001, 0.004]))
    recorder.record(BacklogReported(0.25))
    recorder.record(Reconnected(0, "connection_closed", "code 1001"))
    assert (recorder.send_lateness.total, recorder.total.batches, recorder.lateness.total) == (2, 0, 0)
    assert recorder.server_backlog.max_ms == 250.0
    assert (recorder.reconnects, recorder.details) == (1, {"connection_closed, and back": "code 1001"})


def test_percentiles_of_a_second_are_those_of_its_frames():
    latencies = np.random.default_rng(5).gamma(3.0, 10.0, 500).tolist()
    recorder = Recorder(80.0)
    for latency in latencies:
        recorder.record(FrameBatch([FrameResult(0, 0.5 - latency / 1e3, 0.5, 1, 1)]))
    (second,) = recorder.evidence(1).seconds
    assert second.p99_ms == pytest.approx(np.percentile(latencies, 99, method="inverted_cdf"))
    assert second.p50_ms <= second.p90_ms <= second.p99_ms <= second.max_ms == pytest.approx(max(latencies))
