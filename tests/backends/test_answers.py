"""Which output answers which frame, against servers whose delays are known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.backends.websocket.answers import AnswerMatcher
from metronome_cli.protocols.interface import AnswerRule

PERIOD = 0.08


def matcher(kind="counted", hold_back=0, owed="promised"):
    return AnswerMatcher(0, AnswerRule(kind, owed, hold_back * PERIOD), PERIOD, give_up_s=1.0)


def due(k):
    return (k + 1) * PERIOD


def told(session, delays, answer, hold_back=0):
    """Records of a session whose frame k is answered `delays[k]` after it, in order; the last few are held back."""
    last, events = 0.0, []
    for k, delay in enumerate(delays):
        events.append((due(k), 0, "send"))
        if k >= hold_back:
            last = max(last, due(k) + delay)
            events.append((last, 1, "answer"))
    records = []
    for at, _, what in sorted(events):
        if what == "send":
            session.sent_audio(PERIOD)
            session.sent(at)
        else:
            records += answer(session, at)
    return records


def sound(session, at):
    return session.output(at, PERIOD)


def unit(session, at):
    return session.unit(at)


@given(
    delay=st.floats(0.001, 5 * PERIOD),
    drift=st.floats(0.0, 0.02),
    step=st.floats(0.0, 0.3),
    hold_back=st.integers(0, 3),
    kind=st.sampled_from(["counted", "units"]),
)
def test_any_delay_is_told_in_full_constant_drifting_or_stepping(delay, drift, step, hold_back, kind):
    delays = [delay + drift * k + (step if k >= 20 else 0.0) for k in range(40)]
    answer = sound if kind == "counted" else unit
    records = told(matcher(kind, hold_back), delays, answer, hold_back)
    assert len(records) == 40 - hold_back
    for record, truth in zip(records, delays[hold_back:], strict=True):
        assert record.done_s - record.due_s == pytest.approx(truth, abs=1e-6)


@given(learned=st.integers(1, 4), delay=st.floats(0.001, 0.07))
def test_a_hold_back_that_was_learned_too_large_shrinks_at_the_first_output_that_it_cannot_explain(
    learned, delay
):
    records = told(matcher(hold_back=learned), [delay] * 5 + [0.3] * 20, sound)
    assert all(r.done_s - r.due_s == pytest.approx(0.3) for r in records[-20:])


def test_sound_before_any_input_hides_no_lateness():
    session = matcher()
    session.output(0.0, 5.0)
    records = told(session, [0.25] * 30, sound)
    assert all(r.done_s - r.due_s == pytest.approx(0.25) for r in records)


def test_a_server_that_emits_on_time_but_two_seconds_late_is_late():
    session, records = matcher(), []
    for k in range(100):
        session.sent_audio(PERIOD)
        session.sent(due(k))
        if k >= 25:
            records += session.output(due(k) + 0.01, PERIOD)
    assert all(r.done_s - r.due_s >= 25 * PERIOD - 1e-9 for r in records)
    assert session.behind_frames == 25


def test_silence_is_empty_after_it_is_given_up_and_not_before():
    session = matcher()
    session.sent(due(0))
    assert session.expire(due(0) + 0.99) == []
    (record,) = session.expire(due(0) + 1.0)
    assert record.empty
    assert session.oldest_due_s == math.inf


def test_text_alone_answers_no_frame_that_is_owed_sound():
    session = matcher()
    session.sent(due(0))
    assert session.output(due(0) + 0.01, 0.0) == []
    assert session.last_output_s is None


def test_several_answers_to_one_unit_count_once():
    session = matcher("units")
    for k in range(2):
        session.sent(due(k))
    assert len(session.unit(due(1), "a")) == 1
    assert session.unit(due(1), "a") == []
    assert len(session.unit(due(1), "b")) == 1


def test_in_an_answer_learned_units_are_not_owed():
    session = matcher("units", owed="learned")
    session.turn(True, 0.0)
    session.sent(due(0))
    assert session.expire(100.0) == []
    session.turn(False, 0.1)
    session.sent(due(1))
    assert len(session.expire(100.0)) == 1


def test_between_bursts_nothing_is_owed():
    session = matcher("bursts", owed="none")
    session.sent(due(0))
    assert session.expire(100.0) == []
    session.output(due(0) + 0.01, 0.0)
    session.sent(due(1))
    (record,) = session.output(due(1) + 0.02, 0.0)
    assert record.latency_ms == pytest.approx(20)
    session.sent(due(2))
    session.turn(False, due(2))
    assert session.expire(100.0) == []


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["send", "hear", "unit", "expire"]), st.floats(0, 0.3)), max_size=80
    ),
    kind=st.sampled_from(["counted", "units", "bursts"]),
)
def test_each_frame_is_recorded_at_most_once_and_never_before_it_was_due(steps, kind):
    session, now, sent, records = matcher(kind), 0.0, 0, []
    for what, wait in steps:
        now += wait
        if what == "send":
            session.sent_audio(PERIOD)
            session.sent(now)
            sent += 1
        elif what == "hear":
            records += session.output(now, PERIOD)
        else:
            records += session.unit(now) if what == "unit" else session.expire(now)
    assert len(records) <= sent
    assert all(record.done_s >= record.due_s for record in records)
    assert [r.due_s for r in records] == sorted(r.due_s for r in records)
