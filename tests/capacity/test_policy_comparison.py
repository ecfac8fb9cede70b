"""One controller under three cache policies: bounded, unbounded, and unbounded with the memory guard."""

import re

import pytest

from metronome_cli.capacity.policy_comparison import (
    ADMISSION_GAINS,
    GUARDED,
    UNBOUNDED,
    Offer,
    PolicyVariant,
    compare_policies,
)
from metronome_cli.config.cache_policy import CachePolicySpec
from tests.capacity.builders import context_on, small_profile

BOUNDED = PolicyVariant("bounded", CachePolicySpec.parse("window(64, 16)"))
OFFER = Offer(sessions=80, rate_per_s=4.0)
GAINS = ADMISSION_GAINS


def linear(batch):
    return 0.003 + 0.0012 * batch


@pytest.fixture(scope="module")
def runs():
    context = context_on(linear, profile=small_profile(blocks=1000), length_s=60.0)
    into = []
    compare_policies(context, (BOUNDED, UNBOUNDED, GUARDED), OFFER, GAINS, into)
    return {policy_run.name: policy_run for policy_run in into}


def test_a_bounded_policy_converges_below_a_full_pool(runs):
    policy_run = runs["bounded"]
    assert not policy_run.collapsed
    assert policy_run.sessions_lost == 0
    assert policy_run.occupancy_max < 0.7
    assert 20 < policy_run.mean_sessions_mid_run < 62


def test_an_unbounded_policy_admits_more_than_the_pool_holds(runs):
    policy_run = runs["unbounded"]
    assert policy_run.collapsed
    assert policy_run.sessions_lost >= policy_run.collapse.waiting  # ended sessions free blocks
    assert policy_run.collapse.occupancy > 0.95
    assert policy_run.collapse.waiting > 10 * policy_run.collapse.running
    silent = [p for p in policy_run.windows if p.frames and p.frames == p.empty_frames]
    assert len(silent) > 5
    assert all(p.misses == 0 for p in silent)  # on time, and nothing in them


def test_the_guard_loses_no_session_and_still_fills_nine_tenths(runs):
    policy_run = runs[GUARDED.name]
    assert not policy_run.collapsed
    assert policy_run.sessions_lost == 0
    assert 0.9 <= policy_run.occupancy_max <= 1.0


def test_the_timeline_counts_rejected_sessions(runs):
    for policy_run in runs.values():
        sheds = [p.shed for p in policy_run.windows]
        assert sheds == sorted(sheds)
        assert sheds[-1] > 0


def test_a_guard_that_admits_no_session_says_what_one_needs_and_what_there_is():
    context, into = context_on(linear, profile=small_profile(blocks=100), length_s=60.0), []
    compare_policies(context, (GUARDED,), Offer(sessions=4, rate_per_s=4.0), GAINS, into)
    assert into[0].occupancy_max == 0.0
    need = int(
        re.search(
            r"one session may need (\d+) blocks by the end of its 60 s, and the pool has 100$",
            into[0].no_admission_reason,
        )[1]
    )
    assert need > 60 / 0.08 * 3.5 / 16  # the mean; the guard leaves room for who speaks more


def test_policy_runs_that_admit_give_no_reason(runs):
    assert {policy_run.no_admission_reason for policy_run in runs.values()} == {""}
