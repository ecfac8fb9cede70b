"""One controller, three caches: it converges, it over-admits into the wall, and with the guard it does not."""

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
def arms():
    context = context_on(linear, profile=small_profile(blocks=1000), length_s=60.0)
    into = []
    compare_policies(context, (BOUNDED, UNBOUNDED, GUARDED), OFFER, GAINS, into)
    return {arm.name: arm for arm in into}


def test_bounded_it_converges_below_the_wall(arms):
    arm = arms["bounded"]
    assert not arm.collapsed
    assert arm.sessions_lost == 0
    assert arm.occupancy_max < 0.7
    assert 20 < arm.mean_sessions_mid_run < 62


def test_unbounded_it_over_admits_into_the_wall(arms):
    arm = arms["unbounded"]
    assert arm.collapsed
    assert arm.sessions_lost >= arm.collapse.waiting  # though blocks come free when the first of them leave
    assert arm.collapse.occupancy > 0.95
    assert arm.collapse.waiting > 10 * arm.collapse.running
    silent = [p for p in arm.windows if p.frames and p.frames == p.empty_frames]
    assert len(silent) > 5
    assert all(p.misses == 0 for p in silent)  # on time, and nothing in them


def test_the_guard_loses_nobody_and_still_fills_nine_tenths(arms):
    arm = arms[GUARDED.name]
    assert not arm.collapsed
    assert arm.sessions_lost == 0
    assert 0.9 <= arm.occupancy_max <= 1.0


def test_the_timeline_says_who_was_turned_away(arms):
    for arm in arms.values():
        sheds = [p.shed for p in arm.windows]
        assert sheds == sorted(sheds)
        assert sheds[-1] > 0


def test_a_guard_that_admits_nobody_says_what_one_needs_and_what_there_is():
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


def test_arms_that_admit_give_no_such_reason(arms):
    assert {arm.no_admission_reason for arm in arms.values()} == {""}
