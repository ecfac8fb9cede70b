"""The turn process has the share, the turn length and the memory that it states."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.load.turn_taking import DrawnTurns, TurnTakingProcess


def spoken(share: float, turn_s: float, seeds: range, instants: np.ndarray) -> np.ndarray:
    """[session, instant] of 0 and 1."""
    return np.array(
        [[DrawnTurns(share, turn_s, seed).speaking(t) for t in instants] for seed in seeds], dtype=float
    )


@given(seed=st.integers(0, 2**40), share=st.floats(0.05, 0.95))
@settings(max_examples=30, deadline=None)
def test_the_answer_does_not_depend_on_what_was_asked_before(seed: int, share: float) -> None:
    instants = np.linspace(0, 400, 97)
    forwards = [DrawnTurns(share, 5.0, seed).speaking(t) for t in instants]
    plan = DrawnTurns(share, 5.0, seed)
    shuffled = np.random.default_rng(seed).permutation(len(instants))
    answers = {int(i): plan.speaking(float(instants[i])) for i in shuffled}
    assert forwards == [answers[i] for i in range(len(instants))]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_share_is_held_from_the_first_instant(share: float) -> None:
    states = spoken(share, 4.0, range(2000), np.array([0.0, 3.0, 50.0]))
    error = 4 * math.sqrt(share * (1 - share) / 2000)
    assert np.all(np.abs(states.mean(axis=0) - share) < error)


def test_covariance_fades_at_the_stated_rate() -> None:
    process = TurnTakingProcess(0.3, 6.0)
    lags = np.array([0.0, 2.0, 5.0, 10.0])
    states = spoken(0.3, 6.0, range(6000), lags)
    covariance = [np.mean((states[:, 0] - 0.3) * (states[:, i] - 0.3)) for i in range(len(lags))]
    assert covariance == pytest.approx(0.21 * np.exp(-process.relaxation_per_s * lags), abs=0.015)


def test_turns_have_the_mean_length_given() -> None:
    plan = DrawnTurns(0.4, 3.0, seed=1)
    plan.speaking(60_000.0)
    lengths = np.diff(plan._changes)
    first_is_speech = not plan._first  # the first difference is the second turn
    speech = lengths[0 if first_is_speech else 1 :: 2]
    silence = lengths[1 if first_is_speech else 0 :: 2]
    assert np.mean(speech) == pytest.approx(3.0, rel=0.05)
    assert np.mean(silence) == pytest.approx(4.5, rel=0.05)


@pytest.mark.parametrize(("share", "state"), [(0.0, False), (1.0, True)])
def test_always_and_never(share: float, state: bool) -> None:
    plan = DrawnTurns(share, 8.0, seed=3)
    assert {plan.speaking(t) for t in (0.0, 1.0, 1e6)} == {state}


@pytest.mark.parametrize(
    ("share", "turn_s"), [(-0.1, 1.0), (1.1, 1.0), (0.5, 0.0), (0.5, math.inf), (math.nan, 1.0)]
)
def test_impossible_processes_are_refused(share: float, turn_s: float) -> None:
    with pytest.raises(ValueError, match="share"):
        DrawnTurns(share, turn_s, seed=0)
