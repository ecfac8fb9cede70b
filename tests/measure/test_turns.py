"""Turns: the worked example, and each outcome of a scripted call with known times."""

from __future__ import annotations

import pytest

from metronome_cli.measure.confidence import upper_bound
from metronome_cli.measure.turns import CallTurns


def call(*turns: tuple[float, float]) -> CallTurns:
    made = CallTurns()
    for starts_s, ends_s in turns:
        made.asked(starts_s, ends_s)
    return made


def test_the_worked_example() -> None:
    made = CallTurns()
    made.asked(0.0, 3.0)
    made.answer_began(3.9, 5.0)
    made.asked(11.0, 14.0)
    made.answer_began(15.2, 16.0)
    made.asked(22.0, 25.0)
    made.asked(33.0, 36.0)
    made.answer_began(33.4, 34.0)
    assert [turn.reply_s for turn in made.turns[:3]] == [pytest.approx(0.9), pytest.approx(1.2), None]
    assert made.turns[3].talked_over


def test_ninety_answered_turns_prove_five_percent_and_eighty_nine_do_not() -> None:
    assert upper_bound(0, 90, 0.99) <= 0.05 < upper_bound(0, 89, 0.99)


def test_a_reply_after_ten_seconds_is_none() -> None:
    made = call((0.0, 2.0))
    made.answer_began(12.5, 13.0)
    assert made.finished(13.0)[0].reply_s is None


def test_a_turn_is_settled_once() -> None:
    made = call((0.0, 2.0))
    assert made.finished(5.0) == []
    made.answer_began(6.0, 7.0)
    assert len(made.finished(6.0)) == 1
    assert made.finished(60.0) == []


def test_an_answer_over_its_user_counts_as_an_answer_if_it_still_sounds() -> None:
    cut, going = call((10.0, 13.0)), call((10.0, 13.0))
    for made in (cut, going):
        made.answer_began(11.0, 12.0)
    going.sound_lasts(14.5)
    assert cut.turns[0].talked_over
    assert cut.turns[0].reply_s is None
    assert going.turns[0].talked_over
    assert going.turns[0].reply_s == 0.0


def test_the_tail_of_the_answer_before_talks_over_nothing() -> None:
    made = call((0.0, 2.0), (10.0, 12.0))
    made.answer_began(10.1, 11.0)
    assert not made.turns[1].talked_over


def test_the_endpoint_splits_a_reply() -> None:
    made = call((0.0, 2.0))
    made.endpoint(1.0)
    made.endpoint(2.5)
    made.answer_began(3.2, 4.0)
    turn = made.turns[0]
    assert (turn.endpoint_s, turn.think_s) == (pytest.approx(0.5), pytest.approx(0.7))
    assert turn.endpoints == 2, "a pause within the turn split it"


@pytest.mark.parametrize(("stops_s", "yield_s"), [(5.6, 0.6), (7.0, 2.0), (7.5, None), (None, None)])
def test_a_barge_in_yields_within_two_seconds_or_not(stops_s: float | None, yield_s: float | None) -> None:
    made = CallTurns()
    made.overlap("barge_in", 5.0, sounds=True)
    if stops_s is not None:
        made.stopped(stops_s)
    (overlap,) = made.finished_overlaps(8.0)
    assert overlap.yield_s == (None if yield_s is None else pytest.approx(yield_s))


def test_nothing_sounds_at_a_barge_in_is_no_chance() -> None:
    made = CallTurns()
    made.overlap("barge_in", 5.0, sounds=False)
    made.stopped(5.1)
    assert made.finished_overlaps(8.0)[0].yield_s is None


def test_a_backchannel_that_stops_the_answer_startled_it() -> None:
    made = CallTurns()
    made.overlap("backchannel", 5.0, sounds=True)
    made.stopped(5.4)
    made.overlap("backchannel", 15.0, sounds=True)
    made.stopped(16.5)
    assert [one.startled for one in made.finished_overlaps(20.0)] == [True, False]
