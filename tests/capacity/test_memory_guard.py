"""The guard never lets the pool overflow, and still fills it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.capacity.memory_guard import ActiveSession, BlockGrowth, MemoryGuard

STEADY = BlockGrowth(mean=lambda age_s: age_s * 2.0, variance=lambda span_s: 0.0)


def run(arrival_gaps, length_s, total):
    """Admit by the guard, then replay every end: (peak use, admitted count)."""
    guard = MemoryGuard(STEADY, total)
    starts, now = [], 0.0
    for gap in arrival_gaps:
        now += gap
        sessions = [ActiveSession(now - s, length_s) for s in starts if now - s < length_s]
        used = sum(STEADY.mean(session.age_s) for session in sessions)
        if guard.admits(sessions, ActiveSession(0.0, length_s), used):
            starts.append(now)
    peaks = [
        sum(STEADY.mean(min(t - s, length_s)) for s in starts if s <= t <= s + length_s + 1e-9)
        for t in (s + length_s for s in starts)
    ]
    return max(peaks, default=0.0), len(starts)


@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=40), st.floats(10, 100), st.integers(50, 2000))
def test_admitted_sessions_never_overflow_the_pool(gaps, length_s, total):
    peak, _ = run(gaps, length_s, total)
    assert peak <= total + 1e-6


def test_it_fills_at_least_nine_tenths_when_sessions_keep_coming():
    peak, _ = run(np.full(400, 1.0), 60.0, 2000)
    assert peak >= 0.9 * 2000


def test_all_at_once_admits_exactly_what_fits_at_the_end():
    _, admitted = run(np.zeros(100), 60.0, 2000)
    assert admitted == 2000 // 120


def test_what_sessions_hold_beyond_the_mean_is_carried_forward():
    guard = MemoryGuard(STEADY, 1000)
    sessions = [ActiveSession(10.0, 60.0)] * 4
    assert guard.peak_blocks(sessions, used_now=80 + 100) == pytest.approx(480 + 100)


def test_variance_costs_a_margin_that_shrinks_relative_to_the_crowd():
    growth = BlockGrowth(STEADY.mean, variance=lambda span_s: 4.0 * span_s)

    def share_filled(total):
        guard, sessions = MemoryGuard(growth, total), []
        while guard.admits(sessions, ActiveSession(0.0, 60.0), 0.0):
            sessions.append(ActiveSession(0.0, 60.0))
        return len(sessions) * 120 / total

    assert share_filled(1_200) < share_filled(120_000) < 1.0
