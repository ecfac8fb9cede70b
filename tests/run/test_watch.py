"""What observers see of a run: all of it, from the first instant, and what counts is told from what does not."""

import pytest

from metronome_cli.run.point import PointPlan, PointRun
from metronome_cli.run.watch import Watch
from tests.run.builders import always, lab_on, small_profile

WHOLE = PointPlan(8, "single", ages="start", length_s=20.0)


def run(step_s, length_s=20.0, **changes):
    lab = lab_on(step_s, length_s=length_s, **changes)
    return PointRun(lab, WHOLE).run(into=[]), lab.observer


def test_a_timeline_begins_with_the_warm_up_which_counts_nowhere_else():
    point, observer = run(always(0.005))
    first, *rest = point.timeline
    assert first.warm_up
    assert not any(window.warm_up for window in rest)
    assert first.frames > 0
    assert sum(window.frames for window in rest) == point.frames
    assert point.timeline[-1].t_s >= 19.9
    assert [snapshot.window is None for snapshot in observer.snapshots] == [True] + [False] * len(rest)


def test_a_pool_that_fills_at_once_is_in_the_timeline_and_counts():
    profile = small_profile(policy="unbounded", pool={"blocks": 9, "block_tokens": 4}, exhaustion="preempt")
    point, _ = run(always(0.004), profile=profile)
    assert point.pool_full_t_s < 1.0
    assert not any(window.warm_up for window in point.timeline)
    assert sum(window.frames for window in point.timeline) == point.frames
    assert max(window.occupancy for window in point.timeline) == point.occupancy_max


def test_the_highest_occupancy_of_a_run_is_in_the_window_that_saw_it():
    point, _ = run(always(0.004), profile=small_profile(policy="recycle(256)", blocks=400))
    assert max(window.occupancy for window in point.timeline) == point.occupancy_max


def watched(phase="single", clock="real", share=0.5, progress=(0.0, 1.0), **changes):
    lab = lab_on(always(0.004), clock=clock, progress=progress, **changes)
    Watch(lab, lab.driver(1), phase, "1 session").close_window(share)
    return lab.observer


def test_time_left_is_said_where_the_pace_tells_it():
    assert watched().snapshots[0].eta_s > 0
    assert watched(progress=(0.4, 0.7)).snapshots[0].eta_s > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"clock": "virtual"},
        {"phase": "confirm"},
        {"phase": "ramp"},
        {"share": 0.001},
        {"share": 1.0},
        {"share": None},
    ],
)
def test_time_left_is_not_made_up(changes):
    assert watched(**changes).snapshots[0].eta_s is None


def test_a_first_frame_that_is_far_away_is_announced():
    slow = small_profile(frame={"period": "1m", "sample_rate": 1000, "backlog_limit": 25})
    assert watched(profile=slow).notices[0].startswith("waits for the first frame, due after 60 s, at ")
    assert not watched(profile=slow, clock="virtual").notices
    assert not watched().notices
