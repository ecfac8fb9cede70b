"""A further stage's pool, such as a talker's, is followed beside the decoder's and named when it is the full one."""

from dataclasses import replace

import pytest

from metronome_cli.backends.in_process.backend import InProcessBackend
from metronome_cli.backends.simulated_engine import SimulatedEngine
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.core.types import PoolState
from metronome_cli.results.timeline import downsample
from tests.capacity.builders import always, context_on, small_profile


class Talking(SimulatedEngine):
    """The simulated target with a talker's pool of 100 blocks, of which each step takes one for each session."""

    used = 0

    def step(self, frames):
        result = super().step(frames)
        self.used = min(100, self.used + len(frames))
        waiting = len(frames) if self.used == 100 else 0
        return replace(
            result, other_pools={"talker": PoolState(self.used, 100, len(frames) - waiting, waiting)}
        )


@pytest.fixture
def point():
    profile = small_profile(policy="unbounded", blocks=5000)
    backend = InProcessBackend(lambda profile, slots: Talking(profile, slots, always(0.002)), profile)
    context = context_on(always(0.002), profile, backend=backend)
    return Trial(context, TrialPlan(2, "single", ages="start", length_s=60.0)).run(into=[]).result


def test_the_full_pool_is_named(point):
    assert point.ended_by == "pool_full"
    assert point.limited_by == "memory"
    assert point.reason.startswith("the talker pool was full at 3.9 s")
    assert point.occupancy_max < 0.2


def test_its_occupancy_is_in_the_timeline_and_stays_there_when_thinned(point):
    used = [window.stage_occupancy["talker"] for window in point.windows]
    assert used == sorted(used)
    assert used[-1] == 1.0
    assert max(w.stage_occupancy["talker"] for w in downsample(point.windows, 2)) == 1.0


def test_without_further_stages_there_is_nothing_to_follow():
    context = context_on(always(0.002))
    point = Trial(context, TrialPlan(2, "single", max_batches=40)).run(into=[]).result
    assert all(window.stage_occupancy == {} for window in point.windows)
