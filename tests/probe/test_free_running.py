"""Free decoding's measures against texts whose answer is known."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.probe.quality.breakdown import broke_in_speech, broke_on_text
from metronome_cli.probe.quality.free_running import (
    AgeBucket,
    GeneratedText,
    age_buckets,
    distinct,
    entropy_of,
    free_run,
    repetition,
)
from metronome_cli.probe.quality.subject import UNBOUNDED, CacheVariant
from tests.probe.toy import toy_subject

SUBJECT = toy_subject()


def test_a_loop_repeats_and_a_list_does_not() -> None:
    loop, listed = [1, 2, 3, 4, 5] * 60, list(range(300))
    assert repetition(loop, 128, 128) == 1
    assert repetition(listed, 128, 128) == 0
    assert distinct(loop, 1) == 5 / 300
    assert distinct(listed, 2) == 1


def test_what_was_said_long_ago_is_no_repetition() -> None:
    once, filler = list(range(50)), list(range(1000, 1400))
    assert repetition([*once, *filler, *once], 450, 50) == 0


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 3))
def test_distinct_is_a_share(tokens: list[int], n: int) -> None:
    assert 0 < distinct(tokens, n) <= 1


def test_entropy_of_an_even_guess_and_of_certainty() -> None:
    even, sure = torch.zeros(1, 64), torch.tensor([[100.0, 0.0, 0.0]])
    assert entropy_of(even).item() == pytest.approx(math.log(64))
    assert entropy_of(sure).item() == pytest.approx(0, abs=1e-6)


def test_echo_is_the_share_that_stands_in_what_is_pinned() -> None:
    said = [GeneratedText([1, 2, 3, 4] * 32, [0.0] * 128)]
    assert age_buckets(said, [1, 2, 3, 4, 1, 2, 3])[0].echo == 1
    assert age_buckets(said, [9, 8, 7, 6])[0].echo == 0
    assert age_buckets(said, [1, 2, 3])[0].echo is None


def test_sessions_speak_alike_alone_or_together_and_never_end() -> None:
    variant = CacheVariant(CachePolicySpec("window", 32, 4))
    pair = free_run(SUBJECT, variant, [0, 7, 9], 80, sessions=2, seed=4)
    alone = free_run(SUBJECT, variant, [0, 7, 9], 80, sessions=1, seed=4)
    assert pair[0].tokens == alone[0].tokens != pair[1].tokens
    assert all(len(one.tokens) == len(one.entropy) == 80 for one in pair)
    assert not SUBJECT.tokens.ends & set(pair[0].tokens)
    assert not SUBJECT.tokens.ends & set(pair[1].tokens)


def test_the_window_is_what_is_heard() -> None:
    """Greedy decoding under a window differs from unbounded only once the window slid."""
    free = free_run(SUBJECT, UNBOUNDED, [0, 7, 9], 60, sessions=1, temperature=0.0)[0]
    narrow = free_run(
        SUBJECT, CacheVariant(CachePolicySpec("window", 24, 0)), [0, 7, 9], 60, sessions=1, temperature=0.0
    )[0]
    assert free.tokens[:20] == narrow.tokens[:20]
    assert free.entropy != narrow.entropy


def stretch(start: int, repeats: float = 0.0, entropy: float = 2.0, echo: float | None = None) -> AgeBucket:
    return AgeBucket(start, repeats, 1.0, 1.0, entropy, echo)


def test_speech_broke_where_it_never_recovers() -> None:
    sound, loop = [stretch(0), stretch(128)], [stretch(256, 0.9), stretch(384, 0.8)]
    found = broke_in_speech([*sound, *loop], 64)
    assert found is not None
    assert (found.age, found.how) == (256, "loops")
    assert broke_in_speech([*loop, stretch(512)], 64) is None
    assert broke_in_speech([stretch(0, entropy=4.0)], 64).how == "noise"  # type: ignore[union-attr]
    assert "echo" in broke_in_speech([stretch(0, echo=0.6)], 64).how  # type: ignore[union-attr]


def test_text_broke_against_the_baseline_and_past_it_against_itself() -> None:
    starts, base = [0, 100, 200, 300, 400, 500], [3.0] * 6
    assert broke_on_text([3.0] * 6, base, starts, 300) is None
    assert broke_on_text([3, 3, 4, 4, 4, 4], base, starts, 600).age == 200  # type: ignore[union-attr]
    assert broke_on_text([3, 3, 3, 3, 5, 6], base, starts, 300).age == 400  # type: ignore[union-attr]
    assert broke_on_text([3, 4, 3, 3, 3, 3], base, starts, 600) is None  # one hard stretch is no break
    assert broke_on_text([3, 3, 3, 5, 5, 5], [3, 3, 3, 5, 5, 5], starts, 600) is None  # hard for all
