"""Frames of a model that speaks in turns, against a player simulated sample by sample."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.backends.websocket.playback_answers import PlaybackMatcher

PERIOD = 0.08


def play(chunks, end_s):
    """Seconds that a player which starts with the first chunk has nothing to play, until the last sound is played."""
    played_until, starved = chunks[0][0], 0.0
    for at_s, seconds in chunks:
        starved += max(0.0, at_s - played_until)
        played_until = max(played_until, at_s) + seconds
    return starved + (max(0.0, end_s - played_until) if end_s is not None else 0.0)


def results(chunks):
    session, records = PlaybackMatcher(0, PERIOD, give_up_s=1.0), []
    session.turn(True, chunks[0][0])
    for at_s, seconds in chunks:
        records += session.output(at_s, seconds)
    records += session.turn(False, chunks[-1][0])
    return records + session.expire(1e6)


@given(
    st.lists(
        st.tuples(st.floats(0.0, 0.3), st.sampled_from([0.02, 0.04, 0.08, 0.2])), min_size=1, max_size=60
    )
)
def test_latency_sums_to_the_time_without_sound(steps):
    at_s, chunks = 0.0, []
    for wait_s, seconds in steps:
        at_s += wait_s
        chunks.append((at_s, seconds))
    sound_s = sum(seconds for _, seconds in chunks)
    whole = math.floor(sound_s / PERIOD + 1e-6)
    records = results(chunks)
    assert len(records) == whole
    late_s = sum(r.done_s - r.due_s for r in records)
    assert late_s <= play(chunks, None) + 1e-6
    if abs(whole * PERIOD - sound_s) < 1e-6:
        assert late_s == pytest.approx(play(chunks, None), abs=1e-6)


def test_sound_sent_ahead_is_on_time_and_a_long_silence_before_it_is_no_loss():
    session = PlaybackMatcher(0, PERIOD, give_up_s=1.0)
    for k in range(150):
        session.sent((k + 1) * PERIOD)
    assert session.expire(12.0) == []
    session.turn(True, 12.0)
    records = session.output(12.0, 3.2)
    records += session.turn(False, 12.1)
    records += session.expire(20.0)
    assert len(records) == 40
    assert all(r.delivered and r.done_s == r.due_s for r in records)


def test_an_answer_that_stops_is_empty_for_as_long_as_it_is_open():
    session = PlaybackMatcher(0, PERIOD, give_up_s=1.0)
    session.turn(True, 0.0)
    records = session.output(0.0, PERIOD) + session.expire(3.01)
    empty = [r for r in records if r.empty]
    assert len(empty) == math.floor((3.01 - PERIOD - 1.0) / PERIOD + 1e-6) + 1
    session.turn(False, 3.0)
    assert session.expire(9.0) == []


def test_what_the_user_cut_off_is_not_owed():
    session = PlaybackMatcher(0, PERIOD, give_up_s=1.0)
    session.turn(True, 0.0)
    records = session.output(0.0, 20.0) + session.expire(1.0)
    session.interrupt()
    assert len(records) == 13
    assert session.expire(30.0) == []
    assert session.oldest_due_s == math.inf
