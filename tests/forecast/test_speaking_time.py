"""The law of the speaking frames is the true one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metronome_cli.forecast import speaking_time
from metronome_cli.forecast.speaking_time import spoken_law, spoken_moments
from metronome_cli.load.turn_taking import DrawnTurns, TurnTakingProcess

processes = st.builds(TurnTakingProcess, share=st.floats(0.02, 0.98), turn_s=st.floats(0.2, 60))


def by_enumeration(process: TurnTakingProcess, period_s: float, frames: int) -> np.ndarray:
    """P(S = s) by adding up every path of states."""
    p, fade = process.share, math.exp(-process.relaxation_per_s * period_s)
    stay = {True: p + (1 - p) * fade, False: (1 - p) + p * fade}
    law = np.zeros(frames + 1)
    for path in itertools.product((False, True), repeat=frames):
        chance = p if path[0] else 1 - p
        for here, then in itertools.pairwise(path):
            chance *= stay[here] if here == then else 1 - stay[here]
        law[sum(path)] += chance
    return law


def moments(low: int, weights: np.ndarray) -> tuple[float, float]:
    values = low + np.arange(len(weights))
    mean = float(weights @ values)
    return mean, float(weights @ (values - mean) ** 2)


@given(process=processes, frames=st.integers(1, 9), period_s=st.floats(0.02, 4))
@example(TurnTakingProcess(0.875, 0.01), 1, 1.0)  # turns so short that a frame remembers nothing
@example(TurnTakingProcess(0.5, 0.001), 4, 4.0)
@settings(max_examples=40, deadline=None)
def test_equals_the_sum_over_all_paths(process: TurnTakingProcess, frames: int, period_s: float) -> None:
    low, weights = spoken_law(process, period_s, frames)
    law = np.zeros(frames + 1)
    law[low : low + len(weights)] = weights
    assert law == pytest.approx(by_enumeration(process, period_s, frames), abs=1e-9)


@given(process=processes, frames=st.integers(1, 3000), period_s=st.floats(0.02, 4))
@settings(max_examples=40, deadline=None)
def test_moments_are_those_of_the_law(process: TurnTakingProcess, frames: int, period_s: float) -> None:
    mean, variance = moments(*spoken_law(process, period_s, frames))
    assert (mean, variance) == pytest.approx(spoken_moments(process, period_s, frames), rel=1e-4, abs=1e-6)


def test_short_periods_approach_the_renewal_variance() -> None:
    """2 p q t / theta, the time in one state of an alternating renewal process with exponential turns."""
    process, seconds = TurnTakingProcess(0.3, 4.0), 20_000.0
    _, variance = spoken_moments(process, 0.02, round(seconds / 0.02))
    expected = 2 * 0.3 * 0.7 * seconds / process.relaxation_per_s
    assert variance * 0.02**2 == pytest.approx(expected, rel=1e-3)


def test_long_counts_go_over_to_the_normal_law_without_a_jump() -> None:
    process, frames = TurnTakingProcess(0.5, 8.0), speaking_time.EXACT_FRAMES
    exact = spoken_law(process, 1.0, frames)
    normal = speaking_time._normal_law(*spoken_moments(process, 1.0, frames), frames)
    values = np.arange(frames + 1)
    laws = []
    for low, weights in (exact, normal):
        law = np.zeros(len(values))
        law[low : low + len(weights)] = weights
        laws.append(np.cumsum(law))
    assert np.abs(laws[0] - laws[1]).max() < 1e-3


def test_the_load_draws_from_this_law() -> None:
    frames, period_s = 40, 1.0
    plans = [DrawnTurns(0.4, 6.0, seed) for seed in range(4000)]
    counts = np.array([sum(plan.speaking(k * period_s) for k in range(frames)) for plan in plans])
    low, weights = spoken_law(TurnTakingProcess(0.4, 6.0), period_s, frames)
    expected = np.zeros(frames + 1)
    expected[low : low + len(weights)] = weights
    observed = np.bincount(counts, minlength=frames + 1) / len(counts)
    distance = np.abs(np.cumsum(expected) - np.cumsum(observed)).max()
    assert distance < 1.63 / math.sqrt(len(counts))  # Kolmogorov-Smirnov at 1 %


@pytest.mark.parametrize(("share", "spoken"), [(0.0, 0), (1.0, 50)])
def test_a_model_that_takes_no_turns_is_certain(share: float, spoken: int) -> None:
    low, weights = spoken_law(TurnTakingProcess(share, 8.0), 1.0, 50)
    assert (low, list(weights)) == (spoken, [1.0])
