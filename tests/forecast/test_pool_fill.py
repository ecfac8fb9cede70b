"""First passage of a pool, against sessions that really draw their turns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.config.cache_policy import CachePolicySpec, window_blocks
from metronome_cli.config.profile import Profile
from metronome_cli.forecast.first_passage import quantile
from metronome_cli.forecast.growth import CacheGrowth
from metronome_cli.forecast.hazards import decoder_growth
from metronome_cli.forecast.pool_fill import PoolFill, staggered_starts
from metronome_cli.load.turn_taking import DrawnTurns, TurnTakingProcess
from tests.forecast.profiles import profile


def simulated_t_sat(case: Profile, sessions: int, blocks: int, seed: int, over_s: float = 0.0) -> float:
    """Play the sessions frame by frame until one finds no block."""
    period, tokens = case.frame.period_s, case.tokens
    assert case.kv_pool is not None
    starts = staggered_starts(sessions, period, over_s)
    plans = [
        DrawnTurns(case.turn_taking.speaking_share, case.turn_taking.mean_turn, seed * 1000 + i)
        for i in range(sessions)
    ]
    held, seen = np.zeros(sessions), np.full(sessions, float(case.prompt_tokens))
    due = sorted((starts[i] + (k + 1) * period, i, k) for i in range(sessions) for k in range(250))
    for instant, i, k in due:
        seen[i] += tokens.per_frame(plans[i].speaking(k * period))
        held[i] = math.ceil(seen[i] / case.kv_pool.block_size)
        if held.sum() > blocks:
            return float(instant)
    return math.inf


@pytest.mark.parametrize(
    ("sessions", "blocks", "over_s"), [(1, 150, 0.0), (3, 400, 0.0), (12, 1500, 0.0), (12, 1500, 40.0)]
)
def test_law_of_t_sat_is_that_of_played_sessions(sessions: int, blocks: int, over_s: float) -> None:
    case = profile(prompt_tokens=5)
    fill = PoolFill("pool", decoder_growth(case, 16), sessions, blocks, 0, over_s)
    played = np.sort([simulated_t_sat(case, sessions, blocks, seed, over_s) for seed in range(150)])
    claimed = np.array([fill.by(float(t)) for t in played])
    before = np.array([fill.by(float(t) - 1e-6) for t in played])
    steps = np.arange(len(played))
    distance = max(np.max((steps + 1) / len(played) - claimed), np.max(before - steps / len(played)))
    assert distance < 1.63 / math.sqrt(
        len(played)
    )  # Kolmogorov-Smirnov at 1 %; ties count in the test's favour


def test_without_variance_t_sat_is_an_instant() -> None:
    case = profile(tokens={"prefill": 16, "decode": {"listening": 0, "speaking": 0}})
    fill = PoolFill("pool", decoder_growth(case, 16), 10, 1000)
    low, high = quantile(fill.by, 0.05, 99.0), quantile(fill.by, 0.95, 99.0)
    assert low == high
    assert low == pytest.approx(simulated_t_sat(case, 10, 1000, seed=0), rel=1e-4)


def test_agrees_with_the_first_order_formula_when_blocks_are_small() -> None:
    case = profile(kv_pool={"blocks": 100_000, "block_size": 1})
    fill = PoolFill("pool", decoder_growth(case, 1), 64, 100_000)
    assert fill.first_order_s == pytest.approx(100_000 / (64 * 26.5))
    assert quantile(fill.by, 0.5, fill.first_order_s) == pytest.approx(fill.first_order_s, rel=0.02)


@given(
    sessions=st.integers(1, 200), share=st.floats(0, 1), blocks=st.integers(50, 20_000),
    block=st.integers(1, 64), t_s=st.floats(0, 2000),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_probability_is_one_and_only_grows(
    sessions: int, share: float, blocks: int, block: int, t_s: float
) -> None:
    growth = CacheGrowth(TurnTakingProcess(share, 5.0), 0.5, into=3, speaking=8, block_tokens=block)
    fill = PoolFill("pool", growth, sessions, blocks)
    earlier, later = fill.by(t_s), fill.by(t_s + 7)
    assert 0 <= earlier <= later + 1e-9 <= 1 + 2e-9


@given(occupied=st.integers(0, 900))
@settings(max_examples=20, deadline=None)
def test_what_is_taken_already_comes_off_the_pool(occupied: int) -> None:
    growth = decoder_growth(profile(), 16)
    taken = PoolFill("pool", growth, 8, 1000, occupied)
    smaller = PoolFill("pool", growth, 8, 1000 - occupied)
    assert taken.by(60.0) == pytest.approx(smaller.by(60.0), abs=1e-12)


def test_windows_that_fit_never_fill_the_pool_and_windows_that_do_not_fit_do() -> None:
    growth = decoder_growth(profile(policy="window(256, 16)"), 16)
    most = window_blocks(256, 16, 39, 16)
    assert PoolFill("pool", growth, 10, 10 * most).by(1e6) == 0.0
    settled = growth.settled()
    assert settled is not None
    assert settled.low < settled.mean < most == settled.low + len(settled.weights) - 1
    assert PoolFill("pool", growth, 10, 10 * settled.low - 1).by(1e6) == pytest.approx(1.0)
    assert PoolFill("pool", growth, 10, 10 * most).settles_at == pytest.approx(settled.mean / most)


def test_full_windows_touch_a_block_more_at_some_offsets_than_at_others() -> None:
    growth = decoder_growth(profile(policy="window(64, 16)"), 16)
    settled, share = growth.settled(), growth.process.share
    assert settled is not None
    seen: dict[int, float] = {}
    for positions, chance in ((growth.listening, 1 - share), (growth.speaking, share)):
        frame = math.ceil(growth.into + positions)
        for start in range(1000, 1016):
            held = 1 + len({p // 16 for p in range(start - 64, start + frame)})
            seen[held] = seen.get(held, 0.0) + chance / 16
    for blocks, chance in seen.items():
        assert settled.weights[blocks - settled.low] == pytest.approx(chance)


def test_windows_that_fit_on_the_mean_are_full_in_an_unlucky_frame_sooner_or_later() -> None:
    growth = decoder_growth(profile(policy="window(256, 16)"), 16)
    settled = growth.settled()
    assert settled is not None
    fill = PoolFill("pool", growth, 10, 10 * settled.low + len(settled.weights) * 10 - 12)
    chances = [fill.by(t) for t in (1.0, 60.0, 600.0, 6e4, 6e6)]
    assert chances == sorted(chances)
    assert 0.0 <= chances[0] < chances[2] <= chances[-1] <= 1.0


@given(
    window=st.integers(1, 300), sinks=st.integers(0, 40), frame=st.integers(1, 60), block=st.integers(1, 32),
    length=st.integers(0, 3000),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_a_window_holds_no_more_blocks_than_stated(
    window: int, sinks: int, frame: int, block: int, length: int
) -> None:
    """Counted one by one: every block that the queries of one frame can see, or that the frame writes."""
    seen = {p // block for p in range(min(sinks, length + frame))}
    seen |= {p // block for p in range(max(0, length - window), length + frame)}
    assert len(seen) <= window_blocks(window, sinks, frame, block)


def test_a_ring_is_taken_at_once() -> None:
    growth = CacheGrowth(
        TurnTakingProcess(0.5, 8.0), 0.08, into=1, block_tokens=16, policy=CachePolicySpec("ring", 3000)
    )
    assert PoolFill("pool", growth, 10, 1880).by(0.0) == 0.0
    assert PoolFill("pool", growth, 10, 1879).by(0.0) == 1.0


def drawn_case(rng: np.random.Generator) -> tuple[Profile, int]:
    """Random conditions in which the pool is full after some tens of seconds."""
    sessions, block = int(rng.integers(4, 40)), int(rng.choice([8, 16, 32]))
    heard, said, share = int(rng.integers(1, 16)), int(rng.integers(2, 14)), float(rng.uniform(0.2, 0.8))
    blocks = round(sessions * (heard + share * said) * rng.uniform(20, 60) / block)
    case = profile(
        tokens={"prefill": heard, "decode": {"listening": 0, "speaking": said}},
        turn_taking={"speaking_share": share, "mean_turn": f"{rng.uniform(2, 10):.3f}s"},
        kv_pool={"blocks": blocks, "block_size": block},
    )
    return case, sessions


def test_the_interval_holds_as_often_as_it_says() -> None:
    rng, held = np.random.default_rng(3), []
    for seed in range(150):
        case, sessions = drawn_case(rng)
        assert case.kv_pool is not None and case.kv_pool.blocks is not None  # noqa: PT018
        truth = simulated_t_sat(case, sessions, case.kv_pool.blocks, seed)
        fill = PoolFill("pool", decoder_growth(case, case.kv_pool.block_size), sessions, case.kv_pool.blocks)
        held.append(fill.by(truth) >= 0.05 and fill.by(truth - 1e-6) <= 0.95)
    assert 0.83 < np.mean(held) < 0.97  # 0.9 +- 3 standard errors
