"""Which output answers which frame."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.backends.websocket.answers import AnswerMatcher
from metronome_cli.protocols.interface import ProtocolTraits

PERIOD = 0.08


def answers(steady=True, lag=2):
    return AnswerMatcher(
        0, ProtocolTraits("test", "/", 24000, steady=steady, lag_frames=lag), PERIOD, give_up_s=1.0
    )


def due(k):
    return (k + 1) * PERIOD


@given(delay=st.floats(0.001, 0.07), frames=st.integers(1, 60))
def test_a_prompt_server_is_as_late_as_its_delay(delay, frames):
    session, records = answers(), []
    for k in range(frames):
        session.sent(due(k))
        records += session.output(due(k) + delay, PERIOD)
    assert len(records) == frames
    assert all(r.delivered == 1 and r.done_s - r.due_s == pytest.approx(delay) for r in records)
    assert session.behind_frames == 0


def test_a_server_that_emits_on_time_but_two_seconds_late_is_late():
    """The first output after a frame may be that of a frame long before it."""
    session, records = answers(lag=2), []
    for k in range(100):
        session.sent(due(k))
        if k >= 25:
            records += session.output(due(k) + 0.01, PERIOD)
    behind = 25 - 2
    assert all(r.done_s - r.due_s >= behind * PERIOD - 1e-9 for r in records[2:])
    assert session.behind_frames == behind


def test_silence_is_empty_after_the_patience_and_not_before():
    session = answers()
    session.sent(due(0))
    assert session.expire(due(0) + 0.99) == []
    (record,) = session.expire(due(0) + 1.0)
    assert record.empty
    assert session.oldest_due_s == math.inf


def test_text_alone_answers_no_frame_that_is_owed_sound():
    session = answers()
    session.sent(due(0))
    assert session.output(due(0) + 0.01, 0.0) == []
    assert session.last_output_s is None


def test_between_turns_nothing_is_owed():
    session = answers(steady=False, lag=0)
    session.sent(due(0))
    assert session.expire(100.0) == []
    session.turn(True)
    session.sent(due(1))
    (record,) = session.output(due(1) + 0.02, 0.0)
    assert record.latency_ms == pytest.approx(20)
    session.sent(due(2))
    session.turn(False)
    assert session.expire(100.0) == []


@given(
    steps=st.lists(st.tuples(st.sampled_from(["send", "hear", "expire"]), st.floats(0, 0.3)), max_size=80),
    steady=st.booleans(),
)
def test_each_frame_is_recorded_at_most_once_and_never_before_it_was_due(steps, steady):
    session, now, sent, records = answers(steady), 0.0, 0, []
    session.turn(True)
    for act, gap in steps:
        now += gap
        if act == "send":
            sent += 1
            session.sent(now)
        elif act == "hear":
            records += session.output(now, PERIOD)
        else:
            records += session.expire(now)
    assert len({r.due_s for r in records}) <= len(records) <= sent
    assert all(r.done_s >= r.due_s for r in records)
    assert [r.due_s for r in records] == sorted(r.due_s for r in records)
