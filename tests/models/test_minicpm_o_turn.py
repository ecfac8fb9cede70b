"""The listen-or-speak decision: which token a unit takes, what is fed, when it ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.models.minicpm_o.duplex import (
    SLOTS,
    DuplexSampler,
    ModelDecidedUnit,
    ScheduledUnit,
    UnitIds,
)

IDS = UnitIds()
WORD = 1234


def heard(unit: ModelDecidedUnit | ScheduledUnit, tokens: Sequence[int]) -> list[bool]:
    """Which of the tokens were fed; stops when the unit wants no more."""
    fed = []
    for token in tokens:
        if not unit.wants_more:
            break
        fed.append(unit.accept(token))
    return fed


def test_listen_alone_ends_a_unit_and_is_not_fed() -> None:
    unit = ModelDecidedUnit(IDS, open_turn=False)
    assert heard(unit, [IDS.listen, WORD]) == [False]
    assert (unit.tokens, unit.speaks, unit.turn_over) == ([IDS.listen], False, True)


def test_while_a_turn_is_open_listening_is_not_allowed() -> None:
    unit = ModelDecidedUnit(IDS, open_turn=True)
    assert heard(unit, [IDS.listen, WORD, IDS.chunk_eos]) == [True, True, False]
    assert unit.tokens == [IDS.tts_bos, WORD, IDS.chunk_eos]


def test_the_turns_end_is_fed_like_a_word() -> None:
    unit = ModelDecidedUnit(IDS, open_turn=True)
    assert heard(unit, [IDS.speak, WORD, IDS.turn_eos, IDS.chunk_tts_eos]) == [True, True, True, False]
    assert unit.turn_over


@given(st.lists(st.sampled_from([WORD, IDS.speak, IDS.listen, IDS.chunk_eos, IDS.turn_eos]), min_size=25))
def test_a_unit_ends_within_its_slots_and_only_its_last_token_ends_it(tokens: list[int]) -> None:
    for open_turn in (False, True):
        unit = ModelDecidedUnit(IDS, open_turn)
        heard(unit, tokens)
        assert 1 <= len(unit.tokens) <= SLOTS
        assert [token in IDS.ends for token in unit.tokens] == [False] * (len(unit.tokens) - 1) + [True]
        if len(unit.tokens) == SLOTS:
            assert unit.tokens[-1] == IDS.chunk_eos


@pytest.mark.parametrize(("slots", "speaks", "tokens"), [
    (1, False, [IDS.listen]),
    (2, True, [IDS.speak, IDS.chunk_eos]),
    (4, True, [IDS.speak, WORD, WORD, IDS.chunk_eos]),
])  # fmt: skip
def test_a_planned_unit_has_its_slots(slots: int, speaks: bool, tokens: list[int]) -> None:
    unit = ScheduledUnit(IDS, slots, speaks)
    fed = heard(unit, [WORD] * 30)
    assert unit.tokens == tokens
    assert fed == [True] * (slots - 1) + [False]


def logits(**chances: float) -> torch.Tensor:
    """[1, vocab] with these log-chances; everything else is out of the question."""
    out = torch.full((1, 151_748), -40.0)
    for name, value in chances.items():
        out[0, WORD if name == "word" else WORD + 1 if name == "other" else getattr(IDS, name)] = value
    return out


def test_the_first_draw_may_end_the_unit_the_second_never_does() -> None:
    sampler = DuplexSampler(IDS, seed=0, temperature=0.0)
    sampler.open(0)
    assert sampler.pick([0], logits(chunk_eos=2.0, word=1.0)).item() == IDS.chunk_eos
    assert sampler.pick([0], logits(chunk_eos=1.0, tts_pad=3.0, word=2.0)).item() == WORD


def test_repeated_words_and_the_turns_end_are_held_back() -> None:
    sampler = DuplexSampler(IDS, seed=0, temperature=0.0)
    sampler.open(0)
    assert sampler.pick([0], logits(word=2.0, other=1.95)).item() == WORD
    assert sampler.pick([0], logits(word=2.0, other=1.95)).item() == WORD + 1
    assert sampler.pick([0], logits(turn_eos=2.0, other=2.0)).item() == WORD + 1


def test_what_a_session_draws_does_not_depend_on_who_shares_its_batch() -> None:
    flat = torch.zeros(1, 151_748)
    alone, shared = (DuplexSampler(IDS, seed=4) for _ in range(2))
    for sampler in (alone, shared):
        sampler.open(0)
        sampler.open(1)
    for _ in range(3):
        assert shared.pick([1, 0], flat.expand(2, -1))[1].item() == alone.pick([0], flat).item()


def test_numbers_are_read_from_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<unit>": 7, "<|listen|>": 8, "<other>": 9}))
    ids = UnitIds.read(tmp_path)
    assert (ids.unit, ids.listen, ids.speak) == (7, 8, IDS.speak)


def test_a_smaller_vocabulary_keeps_the_tokens_apart() -> None:
    small = UnitIds().within(300)
    numbers = [
        small.unit,
        small.unit_end,
        small.listen,
        small.speak,
        small.chunk_eos,
        small.turn_eos,
        small.tts_pad,
    ]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) == 299
