"""Transcripts against the same audio alone: the worked examples, and distances against a peer algorithm."""

from __future__ import annotations

import random
from functools import cache

import pytest

from metronome_cli.measure.words import align, compare_words, word_delays, words_of


def test_the_worked_example() -> None:
    counts = compare_words("the bus leaves at ten past nine", "The bus at ten past mine.")
    assert (counts.same, counts.changed, counts.dropped, counts.added) == (5, 1, 1, 0)
    assert counts.dropped_share == pytest.approx(0.143, abs=5e-4)


def test_words_without_case_and_punctuation() -> None:
    assert words_of("Don't stop, C'est-à-dire: 12!") == ["don't", "stop", "c'est", "à", "dire", "12"]


def test_what_two_passes_alone_disagree_on_is_left_out() -> None:
    counts = compare_words("uh the bus leaves", "bus leaves", again="the bus leaves")
    assert counts.unstable == 1
    assert (counts.dropped, counts.reference) == (1, 3)


def test_nothing_to_compare_is_no_share() -> None:
    assert compare_words("", "hello").dropped_share is None
    assert compare_words("", "hello").added == 1


@pytest.mark.parametrize("seed", range(10))
def test_the_alignment_is_as_short_as_the_edit_distance(seed: int) -> None:
    rng = random.Random(seed)
    first = [rng.choice("abcd") for _ in range(rng.randrange(9))]
    second = [rng.choice("abcd") for _ in range(rng.randrange(9))]

    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(
            distance(i - 1, j) + 1,
            distance(i, j - 1) + 1,
            distance(i - 1, j - 1) + (first[i - 1] != second[j - 1]),
        )

    steps = align(first, second)
    assert sum(one.step != "same" for one in steps) == distance(len(first), len(second))
    assert [one.reference for one in steps if one.reference is not None] == list(range(len(first)))
    assert [one.heard for one in steps if one.heard is not None] == list(range(len(second)))


def test_the_delay_of_a_word_is_paired() -> None:
    alone = [("the", 1.0), ("bus", 1.4), ("leaves", 2.0)]
    loaded = [("the", 1.2), ("leaves", 2.9)]
    assert word_delays(alone, loaded) == pytest.approx([0.2, 0.9])
