"""A session's own limit, and a pool that empties at each turn's end, against played sessions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metronome_cli.forecast.growth import CacheGrowth
from metronome_cli.forecast.position_limit import PositionLimit
from metronome_cli.forecast.turn_cache_fill import TurnCacheFill
from metronome_cli.load.turn_taking import DrawnTurns, TurnTakingProcess


def test_first_session_past_its_limit() -> None:
    process = TurnTakingProcess(0.5, 8.0)
    limit = PositionLimit("context", CacheGrowth(process, 1.0, into=2, speaking=20), sessions=6, limit=1500)
    played = []
    for seed in range(200):
        plans = [DrawnTurns(0.5, 8.0, seed * 100 + i) for i in range(6)]
        spoken = np.cumsum([[plan.speaking(k) for k in range(400)] for plan in plans], axis=1)
        positions = 2 * np.arange(1, 401) + 20 * spoken
        played.append(float(np.argmax((positions > 1500).any(axis=0)) + 1))
    for share in (0.1, 0.5, 0.9):
        instant = float(np.quantile(played, share))
        assert limit.by(instant + 0.99) == pytest.approx(np.mean(np.array(played) <= instant), abs=0.12)


def test_a_limit_that_nothing_reaches_is_never_passed() -> None:
    limit = PositionLimit(
        "context", CacheGrowth(TurnTakingProcess(0.5, 8.0), 1.0, into=1), sessions=6, limit=10_000
    )
    assert limit.by(9_999.0) == 0.0
    assert limit.by(10_002.0) == 1.0


def played_peaks(store: TurnCacheFill, length_s: float, runs: int, step_s: float = 0.25) -> float:
    """Share of runs in which the pool ran out, by stepping all sessions through time."""
    rng = np.random.default_rng(7)
    process, size = store.process, (runs, store.sessions)
    assert store.total_blocks is not None
    speaking, held, ended = rng.random(size) < process.share, np.zeros(size), np.zeros(runs, dtype=bool)
    stop, start = -math.expm1(-step_s / process.turn_s), -math.expm1(-step_s / process.listen_s)
    for _ in range(round(length_s / step_s)):
        held += np.where(speaking, store.speaking, store.listening) * step_s
        ended |= np.ceil(held / store.block_tokens).sum(axis=1) > store.total_blocks
        flips = rng.random(size) < np.where(speaking, stop, start)
        held[speaking & flips] = 0
        speaking ^= flips
    return float(ended.mean())


@pytest.mark.parametrize(
    ("sessions", "share", "blocks", "listening"),
    [(16, 0.5, 200, 0.0), (16, 0.5, 230, 0.0), (48, 0.3, 270, 0.0), (16, 0.5, 300, 5.0)],
)
def test_peaks_of_a_pool_that_resets(sessions: int, share: float, blocks: int, listening: float) -> None:
    store = TurnCacheFill("talker", TurnTakingProcess(share, 8.0), sessions, listening, 25.0, 16, blocks)
    assert store.by(200.0) == pytest.approx(played_peaks(store, 200.0, runs=300), abs=0.13)


def test_one_long_turn_can_pass_the_limit_alone() -> None:
    store = TurnCacheFill("talker", TurnTakingProcess(0.5, 8.0), 10, 0.0, 25.0, limit=1000)
    longest = [max(np.diff([0, *plan_changes(seed)])) for seed in range(10)]
    assert store.long_turns_per_s() == pytest.approx(10 * math.exp(-1000 / 200) / 16)
    assert store.peaks_per_s() == 0.0
    assert max(longest) > 8.0


def test_nothing_is_full_before_all_sessions_could_have_filled_it() -> None:
    process = TurnTakingProcess(0.5, 8.0)
    pool = TurnCacheFill("talker", process, 100_000, 0.0, 25.0, 16, 1000)
    assert pool.by(1000 * 16 / (100_000 * 25.0)) == 0.0
    assert pool.by(1.0) == pytest.approx(1.0)
    limit = TurnCacheFill("talker limit", process, 100_000, 0.0, 25.0, limit=1000)
    assert limit.by(40.0) == 0.0  # 1,000 positions at 25 a second
    assert limit.by(40.1) > 0.99


def test_long_turns_against_played_ones() -> None:
    store = TurnCacheFill("talker limit", TurnTakingProcess(0.5, 8.0), 10, 0.0, 25.0, limit=400)
    played = []
    for seed in range(300):
        plans = [DrawnTurns(0.5, 8.0, seed * 100 + i) for i in range(10)]
        spoken = np.array([[plan.speaking(k * 0.25) for k in range(400)] for plan in plans])
        run = np.zeros(10)
        first = math.inf
        for k in range(400):
            run = np.where(spoken[:, k], run + 0.25, 0.0)
            if (run * 25.0 > 400).any():
                first = k * 0.25
                break
        played.append(first)
    for instant in (17.0, 25.0, 40.0):
        assert store.by(instant) == pytest.approx(np.mean(np.array(played) <= instant), abs=0.1)


def plan_changes(seed: int) -> list[float]:
    plan = DrawnTurns(0.5, 8.0, seed)
    plan.speaking(300.0)
    return plan._changes


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_without_turns_there_are_no_peaks(share: float) -> None:
    store = TurnCacheFill("talker", TurnTakingProcess(share, 8.0), 10, 0.0, 25.0, 16, 50, 1000)
    assert store.by(1e6) == 0.0
    assert store.first_order_s == math.inf


def test_more_memory_never_hurts() -> None:
    rates = [
        TurnCacheFill("t", TurnTakingProcess(0.5, 8.0), 32, 0.0, 25.0, 16, n).peaks_per_s()
        for n in range(250, 700, 50)
    ]
    assert rates == sorted(rates, reverse=True)
