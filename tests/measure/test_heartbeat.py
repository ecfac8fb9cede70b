"""Answers while the model listens: the worked examples, and a countdown against a known growth."""

from __future__ import annotations

import pytest

from metronome_cli.measure.heartbeat import Beats, CacheLength, dropped_units, match_beats, owed


def test_the_worked_example() -> None:
    assert match_beats([1, 2, 3, 4], [1.3, 2.4, 3.2]) == pytest.approx([0.3, 0.4, 0.2, None])


def test_no_answer_comes_before_its_unit() -> None:
    assert match_beats([1, 2], [2.5]) == [1.5, None]
    assert match_beats([1, 2], []) == [None, None]


def test_a_cache_counts_down_to_its_limit() -> None:
    cache = CacheLength(limit=8192)
    for t_s, length in enumerate([71, 84, 116, 148]):
        cache.report(float(t_s), length)
    assert cache.growth_per_s == pytest.approx(26.3, abs=0.05)
    assert cache.full_in_s == pytest.approx(305.9, abs=0.5)


def test_one_report_or_no_limit_is_no_countdown() -> None:
    cache = CacheLength(limit=8192)
    cache.report(0.0, 10)
    assert cache.full_in_s is None
    assert cache.growth_per_s is None
    free = CacheLength()
    for t_s in range(3):
        free.report(float(t_s), 10 * t_s)
    assert free.growth_per_s == pytest.approx(10.0)
    assert free.full_in_s is None


def test_a_cache_that_stands_still_is_answered_by_the_front() -> None:
    cache = CacheLength()
    for t_s, length in enumerate([10, 20, 30, 30, 30]):
        cache.report(float(t_s), length)
    assert not cache.only_front_answers
    cache.report(5.0, 30)
    assert cache.only_front_answers


def test_answers_are_owed_where_promised_or_learned_alone() -> None:
    assert owed(True, None) == "promised"
    assert owed(False, 0.95) == "learned"
    assert owed(False, 0.5) == "none"
    assert owed(False, None) == "none"


def test_the_longest_silence_is_within_a_session() -> None:
    beats = Beats()
    beats.beat(0, 1.0, speaking=False)
    beats.beat(1, 9.0, speaking=True)
    assert beats.longest_silence_s is None
    beats.beat(0, 3.5, speaking=False)
    assert beats.longest_silence_s == pytest.approx(2.5)
    assert (beats.listen, beats.speak) == (2, 1)


def test_units_that_may_still_be_answered_are_not_dropped() -> None:
    assert dropped_units(100, 90, give_up_s=5.0, period_s=1.0) == 5
    assert dropped_units(100, 96, give_up_s=5.0, period_s=1.0) == 0
