"""A point says what was measured, and what ended it."""

import pytest

from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from tests.capacity.builders import always, context_on, run_trial, small_profile

GROWING = {"policy": "unbounded", "blocks": 400}


def run(step_s, plan, **changes):
    return run_trial(step_s, plan, **changes)


def test_a_light_load_passes_with_the_steps_that_p99_needs():
    point = run(always(0.005), TrialPlan(8, "confirm", max_batches=1000))
    assert point.verdict == "pass"
    assert 459 <= point.batches < 700
    assert point.misses == 0
    assert point.latency_ms.p50 <= point.latency_ms.p99 <= point.latency_ms.max


def test_an_overload_fails_early_and_the_deadline_limits():
    point = run(lambda n: 0.02 * n, TrialPlan(12, "confirm", max_batches=1000))
    assert (point.verdict, point.ended_by, point.limited_by) == ("fail", "objective_failed", "deadline")
    assert point.batches < 200


def test_an_unbounded_cache_collapses_silently_and_is_named_for_what_it_is():
    plan = TrialPlan(8, "single", ages="start", length_s=120.0)
    point = run(always(0.004), plan, profile=small_profile(**GROWING), length_s=120.0)
    assert (point.verdict, point.ended_by, point.limited_by) == ("fail", "pool_full", "memory")
    assert point.misses == 0
    assert point.empty_frames > 0
    expected = 400 * 16 / (8 * 43.75)
    assert point.pool_full_at_s == pytest.approx(expected, rel=0.15)
    assert point.collapse.occupancy > 0.97
    assert point.collapse.running == 0
    assert point.collapse.waiting == 8
    assert point.duration_s < 120.0


def test_occupancy_climbs_in_a_line_until_it_is_full():
    plan = TrialPlan(8, "single", ages="start", length_s=120.0)
    point = run(always(0.004), plan, profile=small_profile(**GROWING), length_s=120.0)
    rising = [(p.t_s, p.occupancy) for p in point.windows if p.t_s < 0.9 * point.pool_full_at_s]
    slope = rising[-1][1] / rising[-1][0]
    assert all(occupancy == pytest.approx(slope * t, abs=0.06) for t, occupancy in rising)


def test_a_latency_objective_alone_does_not_pass_a_collapse():
    plan = TrialPlan(8, "single", ages="start", length_s=120.0)
    point = run(
        always(0.004), plan, profile=small_profile(**GROWING), length_s=120.0, objectives=["p99<80ms"]
    )
    assert point.verdict == "fail"


def test_a_window_on_the_same_pool_never_fills_it():
    plan = TrialPlan(8, "soak", ages="start", length_s=120.0, until="end")
    point = run(always(0.004), plan, profile=small_profile(blocks=400), length_s=120.0)
    assert point.verdict == "pass"
    assert point.duration_s == pytest.approx(120.0, abs=1.5)
    assert point.occupancy_max < 0.3


def test_sessions_without_room_are_refused_and_that_fails():
    point = run(
        always(0.004), TrialPlan(100, "memory", ages="end", length_s=2.0), profile=small_profile(**GROWING)
    )
    assert (point.verdict, point.ended_by, point.limited_by) == ("fail", "rejected", "memory")


def test_interrupted_is_never_a_pass():
    context = context_on(always(0.004))
    context.stop.request(2)
    point = Trial(context, TrialPlan(4, "confirm", max_batches=1000)).run(into=[]).result
    assert point.verdict == "inconclusive"
    assert point.ended_by == "interrupted"
    assert point.latency_ms.p99 is None


def test_one_session_is_followed_by_another_until_the_verdict_is_settled():
    point = run(always(0.002), TrialPlan(1, "confirm", max_batches=1000), length_s=20.0)
    assert point.verdict == "pass"
    assert point.batches >= 459
