"""Recorded turns and audio of a session equal those of the session itself."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.load.trace import RecordedTurns, TraceSession
from metronome_cli.load.turn_taking import DrawnTurns

PERIODS_S = st.sampled_from([0.08, 0.1, 1.0, 2.0])
SHARES = st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0])
AGES_S = st.floats(0, 5000)


def flags(lengths):
    return list(itertools.chain.from_iterable([n % 2 == 1] * length for n, length in enumerate(lengths)))


def session(age_s, speaks):
    return TraceSession(
        session=0, start_s=0.0, age_s=age_s, lifetime_s=1.0, phase_s=0.0, loop_offset=0, turn_frames=speaks
    )


@given(PERIODS_S, SHARES, AGES_S, st.integers(0, 99), st.integers(1, 400))
def test_lengths_say_of_each_frame_what_the_plan_says(period_s, share, age_s, seed, frames):
    plan, same = DrawnTurns(share, 4.0, seed), DrawnTurns(share, 4.0, seed)
    told = [plan.speaking(age_s + k * period_s) for k in range(frames)]
    assert flags(same.runs(age_s, period_s, frames)) == told


@given(PERIODS_S, SHARES, AGES_S, st.integers(0, 99), st.integers(1, 400))
def test_recorded_turns_are_those_of_the_plan(period_s, share, age_s, seed, frames):
    plan = DrawnTurns(share, 4.0, seed)
    recorded = RecordedTurns(session(age_s, plan.runs(age_s, period_s, frames)), period_s)
    for k in range(frames):
        assert recorded.speaking(age_s + k * period_s) == plan.speaking(age_s + k * period_s)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20), AGES_S)
def test_what_is_recorded_of_a_recording_is_the_recording(speaks, age_s):
    recorded = RecordedTurns(session(age_s, speaks), 0.08)
    assert recorded.runs(age_s, 0.08, sum(speaks) + 1) == speaks


def test_long_stretches_take_no_room():
    recorded = RecordedTurns(session(0.0, [10**9, 10**9]), 0.08)
    assert not recorded.speaking(0.08 * (10**9 - 1))
    assert recorded.speaking(0.08 * 10**9)


def test_after_the_last_recorded_frame_it_stays_as_it_was():
    assert RecordedTurns(session(0.0, [2, 3]), 0.08).speaking(80.0)
    assert not RecordedTurns(session(0.0, [2, 3, 1]), 0.08).speaking(80.0)
