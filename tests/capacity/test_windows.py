"""What observers see of a run: all of it, from the first instant, and what counts is told from what does not."""

import re

import pytest

from metronome_cli.capacity.context import Progress
from metronome_cli.capacity.progress import PhaseProgress, steps_done, time_done
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.capacity.windows import Windows
from tests.capacity.builders import always, context_on, small_profile

WHOLE = TrialPlan(8, "single", ages="start", length_s=20.0)


def run(step_s, length_s=20.0, **changes):
    context = context_on(step_s, length_s=length_s, **changes)
    return Trial(context, WHOLE).run(into=[]).result, context.observer


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
    profile = small_profile(
        policy="unbounded", kv_pool={"blocks": 9, "block_size": 4}, on_pool_full="preempt"
    )
    point, _ = run(always(0.004), profile=profile)
    assert point.pool_full_at_s < 1.0
    assert not any(window.warm_up for window in point.windows)
    assert sum(window.frames for window in point.windows) == point.frames
    assert max(window.occupancy for window in point.windows) == point.occupancy_max


def test_the_highest_occupancy_of_a_run_is_in_the_window_that_saw_it():
    point, _ = run(always(0.004), profile=small_profile(policy="recycle(256)", blocks=400))
    assert max(window.occupancy for window in point.windows) == point.occupancy_max


def close_windows(context, *shares, phase="single", done=""):
    with context.open_load(1) as load:
        for share in shares:
            Windows(context, load, phase, "1 session").close(PhaseProgress(share, done))
    return context.observer


def watched(clock="real", share=0.5, progress=(0.0, 1.0), searching=False, budget_s=None, **changes):
    shown = Progress(*progress, searching=searching, time_limit_s=budget_s)
    return close_windows(context_on(always(0.004), clock=clock, progress=shown, **changes), share)


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
    context = context_on(always(0.004), clock="real")
    close_windows(context, 0.2, 0.5, 0.3, 0.6)
    assert [snapshot.progress for snapshot in context.observer.snapshots] == [0.2, 0.5, 0.5, 0.6]


def test_a_search_says_how_much_of_its_time_is_gone():
    context = context_on(always(0.004), progress=Progress(searching=True, time_limit_s=1e-9))
    close_windows(context, 0.3, phase="confirm", done="step 144 of 480")
    (seen,) = context.observer.snapshots
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
