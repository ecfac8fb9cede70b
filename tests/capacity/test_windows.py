"""What observers see of a run: all of it, from the first instant, and what counts is told from what does not."""

import re

import pytest

from metronome_cli.capacity.point import PointPlan, PointRun
from metronome_cli.capacity.progress import PhaseProgress, steps_done, time_done
from metronome_cli.capacity.windows import WindowReporter
from tests.capacity.builders import always, lab_on, small_profile

WHOLE = PointPlan(8, "single", ages="start", length_s=20.0)


def run(step_s, length_s=20.0, **changes):
    lab = lab_on(step_s, length_s=length_s, **changes)
    return PointRun(lab, WHOLE).run(into=[]), lab.observer


def test_a_timeline_begins_with_the_warm_up_which_counts_nowhere_else():
    point, observer = run(always(0.005))
    first, *rest = point.windows
    assert first.warm_up
    assert not any(window.warm_up for window in rest)
    assert first.frames > 0
    assert sum(window.frames for window in rest) == point.frames
    assert point.windows[-1].t_s >= 19.9
    assert [snapshot.window is None for snapshot in observer.snapshots] == [True] + [False] * len(rest)


def test_a_pool_that_fills_at_once_is_in_the_timeline_and_counts():
    profile = small_profile(policy="unbounded", kv_pool={"blocks": 9, "block_size": 4}, exhaustion="preempt")
    point, _ = run(always(0.004), profile=profile)
    assert point.pool_full_at_s < 1.0
    assert not any(window.warm_up for window in point.windows)
    assert sum(window.frames for window in point.windows) == point.frames
    assert max(window.occupancy for window in point.windows) == point.occupancy_max


def test_the_highest_occupancy_of_a_run_is_in_the_window_that_saw_it():
    point, _ = run(always(0.004), profile=small_profile(policy="recycle(256)", blocks=400))
    assert max(window.occupancy for window in point.windows) == point.occupancy_max


def watched(phase="single", clock="real", share=0.5, progress=(0.0, 1.0), **changes):
    lab = lab_on(always(0.004), clock=clock, progress=progress, **changes)
    WindowReporter(lab, lab.driver(1), phase, "1 session").close_window(PhaseProgress(share))
    return lab.observer


def test_time_left_is_said_where_the_pace_tells_it():
    assert watched().snapshots[0].eta_s > 0
    assert watched(progress=(0.4, 0.7)).snapshots[0].eta_s > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"clock": "virtual"},
        {"searching": True},
        {"searching": True, "budget_s": 40.0},
        {"share": 0.001},
        {"share": 1.0},
    ],
)
def test_time_left_is_not_made_up(changes):
    assert watched(**changes).snapshots[0].eta_s is None


def test_progress_never_goes_back():
    """A bad step makes more steps needed, and a search goes from number to number."""
    lab = lab_on(always(0.004), clock="real")
    for share in (0.2, 0.5, 0.3, 0.6):
        WindowReporter(lab, lab.driver(1), "single", "1 session").close_window(PhaseProgress(share))
    assert [snapshot.progress for snapshot in lab.observer.snapshots] == [0.2, 0.5, 0.5, 0.6]


def test_a_search_says_how_much_of_its_time_is_gone():
    lab = lab_on(always(0.004), searching=True, budget_s=1e-9)
    WindowReporter(lab, lab.driver(1), "confirm", "1 session").close_window(
        PhaseProgress(0.3, "step 144 of 480")
    )
    (seen,) = lab.observer.snapshots
    assert (seen.progress, seen.budget_s, seen.done) == (1.0, 1e-9, "step 144 of 480")
    assert watched(searching=True).snapshots[0].progress is None


@pytest.mark.parametrize(("done", "words"), [
    (steps_done(210, 480), "step 210 of 480"),
    (steps_done(1210, 4800), "step 1,210 of 4,800"),
    (time_done(200.0, 600.0), "3 min 20 s of 10 min"),
    (time_done(1.31, 1.92), "1.3 s of 1.9 s"),
    (time_done(61.0, 60.0), "60 s of 60 s"),
])  # fmt: skip
def test_how_far_a_phase_is_in_words(done, words):
    assert done.words == words


def test_a_first_frame_that_is_far_away_is_announced():
    slow = small_profile(frame={"period": "1m", "sample_rate": 1000, "max_backlog": 25})
    said = watched(profile=slow).details[0]
    assert re.fullmatch(r"1 session, first frame due at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, after 60 s", said)
    assert watched(profile=slow, clock="virtual").details[0] == "1 session"
    assert watched().details[0] == "1 session"
