"""A process that stood still is told from one that was busy, by what its own threads saw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.measure.stall import STILL_S, StallDetector


class Times:
    """A clock and the processor time used, both moved by hand."""

    def __init__(self):
        self.now_s = self.used_s = 0.0

    def pulse(self):
        return StallDetector(lambda: self.now_s, lambda: self.used_s)


@pytest.mark.parametrize(
    ("gap_s", "used_s", "still_s"),
    [
        (3.0, 0.01, 3.0),  # stopped
        (3.0, 2.9, 0.0),  # one thread computed and let no other run
        (3.0, 5.8, 0.0),  # two did
        (0.3, 0.0, 0.0),  # a hiccup
        (0.05, 0.0, 0.0),  # a beat
    ],
)
def test_only_a_long_stretch_without_any_work_is_stillness(gap_s, used_s, still_s):
    times = Times()
    pulse = times.pulse()
    times.now_s += gap_s
    times.used_s += used_s
    assert pulse.beat() == still_s
    assert pulse.beat() == still_s


@given(st.lists(st.floats(0.001, STILL_S), min_size=1, max_size=50))
def test_a_process_that_beats_never_stands_still_however_long_it_waits(gaps):
    times = Times()
    pulse = times.pulse()
    for gap_s in gaps:
        times.now_s += gap_s * 0.999
        assert pulse.beat() == 0.0


@given(st.lists(st.floats(0.6, 100.0), min_size=1, max_size=10))
def test_stretches_add_up(gaps):
    times = Times()
    pulse = times.pulse()
    for gap_s in gaps:
        times.now_s += gap_s
        pulse.beat()
    assert pulse.still_s == pytest.approx(sum(gaps))


def test_the_thread_is_gone_when_it_is_closed():
    with StallDetector() as pulse:
        thread = pulse._thread
        assert thread.is_alive()
    assert not thread.is_alive()
