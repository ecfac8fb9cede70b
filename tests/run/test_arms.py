"""One controller, three caches: it converges, it over-admits into the wall, and with the guard it does not."""

import pytest

from metronome_cli.config.policy import PolicySpec
from metronome_cli.run.arms import ADMISSION_GAINS, GUARDED, UNBOUNDED, ArmPlan, Offer, run_arms
from tests.run.builders import lab_on, small_profile

BOUNDED = ArmPlan("bounded", PolicySpec.parse("window(64, 16)"))
OFFER = Offer(sessions=80, rate_per_s=4.0)
GAINS = ADMISSION_GAINS


def linear(batch):
    return 0.003 + 0.0012 * batch


@pytest.fixture(scope="module")
def arms():
    lab = lab_on(linear, profile=small_profile(blocks=1000), length_s=60.0)
    into = []
    run_arms(lab, (BOUNDED, UNBOUNDED, GUARDED), OFFER, GAINS, into)
    return {arm.name: arm for arm in into}


def test_bounded_it_converges_below_the_wall(arms):
    arm = arms["bounded"]
    assert not arm.collapsed
    assert arm.lost_sessions == 0
    assert arm.occupancy_max < 0.7
    assert 20 < arm.settled_sessions < 62


def test_unbounded_it_over_admits_into_the_wall(arms):
    arm = arms["unbounded"]
    assert arm.collapsed
    assert arm.lost_sessions > 0
    assert arm.collapse.occupancy > 0.95
    assert arm.collapse.waiting > 10 * arm.collapse.running
    silent = [p for p in arm.timeline if p.frames and p.frames == p.empty_frames]
    assert len(silent) > 5
    assert all(p.misses == 0 for p in silent)  # on time, and nothing in them


def test_the_guard_loses_nobody_and_still_fills_nine_tenths(arms):
    arm = arms[GUARDED.name]
    assert not arm.collapsed
    assert arm.lost_sessions == 0
    assert 0.9 <= arm.occupancy_max <= 1.0


def test_the_timeline_says_who_was_turned_away(arms):
    for arm in arms.values():
        sheds = [p.shed for p in arm.timeline]
        assert sheds == sorted(sheds)
        assert sheds[-1] > 0
