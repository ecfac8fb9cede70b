"""A verdict has three values; what is printed is what is judged; no data and drift never pass."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.core.session import FrameBatch, FrameResult, SessionEnded, SessionSpec
from metronome_cli.measure.objective import Objective
from metronome_cli.measure.recorder import Recorder
from metronome_cli.measure.verdict import (
    batches_to_settle,
    drift_reason,
    is_proved,
    judge,
    judge_all,
    lateness_reason,
    overall_verdict,
)

P99 = Objective.parse("p99<80ms")


def recorder_of(latencies_ms, *, delivered=1, late_s=0.0, limits=(80.0,), expected=1):
    """One frame in each batch, a batch every 80 ms."""
    return of_batches(
        [[latency] for latency in latencies_ms],
        delivered=delivered,
        late_s=late_s,
        limits=limits,
        expected=expected,
    )


def of_batches(batches_ms, *, delivered=1, late_s=0.0, limits=(80.0,), expected=1):
    """Latencies of the frames of each batch, a batch every 80 ms."""
    recorder = Recorder(80.0, limits)
    for index, latencies_ms in enumerate(batches_ms):
        due_s = index * 0.08
        frames = [
            FrameResult(session, due_s, due_s + latency / 1e3, expected, delivered)
            for session, latency in enumerate(latencies_ms)
        ]
        recorder.record(FrameBatch(frames, late_s, late_s))
    return recorder


def verdict(latencies_ms, objective=P99, **changes):
    return judge(objective, recorder_of(latencies_ms, **changes), 0.4).verdict


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        (459, 0, "pass"),
        (458, 0, "inconclusive"),
        (458, 1, "inconclusive"),
        (661, 1, "inconclusive"),
        (930, 1, "pass"),
        (30, 6, "fail"),
        (0, 0, "inconclusive"),
    ],
)
def test_p99_needs_its_batches(good, bad, expected):
    assert verdict([20.0] * good + [90.0] * bad) == expected


@pytest.mark.parametrize(
    ("objective", "good", "bad", "expected"),
    [
        ("p99<80ms", 79, 1, True),
        ("p99<80ms", 78, 2, False),
        ("p50<80ms", 60, 40, True),
        ("p50<80ms", 10, 70, False),
        ("max<80ms", 80, 0, True),
        ("max<80ms", 79, 1, False),
        ("p99<80ms", 0, 0, False),
    ],
)
def test_a_screening_is_promising_with_as_many_bad_batches_as_are_allowed_or_one(
    objective, good, bad, expected
):
    latencies = np.random.default_rng(3).permutation([20.0] * good + [90.0] * bad).tolist()
    assert judge(Objective.parse(objective), recorder_of(latencies), 0.4).promising is expected


def test_an_open_verdict_says_how_many_more_batches_would_settle_it():
    result = judge(P99, recorder_of([20.0] * 400 + [90.0]), 0.4)
    missing = batches_to_settle(1, 401, 0.01, 0.99)
    assert result.batches_missing == missing
    assert is_proved(1, 401 + missing, 0.01, 0.99)
    assert not is_proved(1, 400 + missing, 0.01, 0.99)


@given(st.lists(st.lists(st.floats(1, 200), min_size=1, max_size=12), min_size=1, max_size=60))
def test_what_is_judged_is_the_share_of_frames_that_is_printed(batches_ms):
    recorder = of_batches(batches_ms)
    frames = [latency for batch in batches_ms for latency in batch]
    share = sum(latency > 80.0 for latency in (1e3 * (latency / 1e3) for latency in frames)) / len(frames)
    misses = judge(Objective.parse("misses<1%"), recorder, None)
    assert misses.measured == pytest.approx(share, abs=0.5 / len(frames))
    assert misses.bad == pytest.approx(misses.effective * misses.measured)
    sizes = np.array([len(batch) for batch in batches_ms])
    assert misses.effective <= sizes.sum() ** 2 / (sizes**2).sum() + 1e-9 <= len(batches_ms) + 1e-6


def test_a_late_frame_of_forty_costs_a_fortieth_of_a_batch():
    one = of_batches([[20.0] * 40] * 458 + [[20.0] * 39 + [90.0]])
    found = judge(P99, one, None)
    assert found.bad == pytest.approx(1 / 40)
    assert found.effective == pytest.approx(459)
    all_of_it = of_batches([[20.0] * 40] * 458 + [[90.0] * 40])
    assert judge(P99, all_of_it, None).bad == pytest.approx(1)


def test_frames_of_one_batch_are_not_as_many_proofs():
    assert judge(P99, of_batches([[10.0] * 30] * 20), None).verdict == "inconclusive"


def test_bad_frames_in_a_burst_are_less_evidence_than_the_same_number_spread():
    """20 bad of 600 batches in one of twelve blocks: a single hiccup does not refute 1 %."""
    spread = [90.0 if index % 30 == 7 else 20.0 for index in range(600)]
    burst = [90.0 if 300 <= index < 320 else 20.0 for index in range(600)]
    assert verdict(spread) == "fail"
    assert verdict(burst) == "inconclusive"
    assert judge(P99, recorder_of(burst), None).effective < 60


def test_misses_are_judged_by_their_own_share():
    objective = Objective.parse("misses<0.1%")
    assert verdict([20.0] * 459, objective) == "inconclusive"
    assert verdict([20.0] * 4603, objective) == "pass"


def test_silence_fails_even_if_every_frame_is_on_time():
    objective = Objective.parse("empty<1%")
    assert verdict([5.0] * 500, objective, delivered=0) == "fail"
    assert verdict([5.0] * 500, P99, delivered=0) == "pass"


def test_frames_that_owe_nothing_are_no_evidence_of_output():
    objective = Objective.parse("empty<1%")
    silent = judge(objective, recorder_of([5.0] * 2000, expected=0, delivered=0), None)
    assert (silent.verdict, silent.measured) == ("inconclusive", None)
    recorder = recorder_of([5.0] * 500)
    for index in range(500):
        recorder.record(FrameBatch([FrameResult(0, 40.0 + index, 40.01 + index, 0, 0)]))
    recorder.record(FrameBatch([FrameResult(0, 900.0, 900.01, 1, 0)]))
    assert judge(objective, recorder, None).measured == pytest.approx(1 / 501)


def test_extremes_fail_once_and_pass_only_with_enough_batches():
    objective = Objective.parse("max<100ms")
    assert verdict([20.0] * 459, objective) == "pass"
    assert verdict([20.0] * 100, objective) == "inconclusive"
    assert verdict([20.0] * 459 + [101.0], objective) == "fail"


def test_what_the_backend_does_not_show_is_inconclusive_and_listed():
    occupancy = Objective.parse("occupancy<90%")
    judged = judge_all([P99, occupancy], recorder_of([20.0] * 500), None, 0.99)
    assert [one.verdict for one in judged] == ["pass", "inconclusive"]
    assert overall_verdict(judged)[0] == "inconclusive"


def test_drift_never_passes():
    judgements = [judge(P99, recorder_of([20.0] * 500), 0.4)]
    assert overall_verdict(judgements)[0] == "pass"
    rising = recorder_of([10.0 + index * 0.1 for index in range(500)])
    assert overall_verdict(judgements, drift_reason(rising))[0] == "inconclusive"


@pytest.mark.parametrize(
    ("latency_ms", "late_s", "expected"),
    [
        (20.0, 0.02, "pass"),  # in spite of it
        (90.0, 0.02, "inconclusive"),  # on time it might have passed
        (400.0, 0.02, "fail"),  # by far more than the lateness
        (90.0, 0.001, "fail"),  # the generator was on time
    ],
)
def test_lateness_of_the_generator_decides_only_what_it_could_have_changed(latency_ms, late_s, expected):
    recorder = recorder_of([latency_ms] * 500, late_s=late_s)
    (judged,) = judge_all([P99], recorder, None, 0.99)
    assert judged.verdict == expected
    assert (judged.reason == lateness_reason(recorder)) is (expected == "inconclusive")


def test_silence_is_not_blamed_on_a_late_generator():
    objective = Objective.parse("empty<1%")
    recorder = recorder_of([5.0] * 500, delivered=0, late_s=0.03)
    assert judge_all([objective], recorder, None, 0.99)[0].verdict == "fail"


def test_no_objective_is_no_pass():
    assert overall_verdict([])[0] == "inconclusive"


def test_sessions_that_fell_behind_are_counted_from_their_ends():
    recorder = recorder_of([20.0] * 459)
    recorder.opened(SessionSpec(0.0, index=7))
    recorder.record(SessionEnded(7, "fell_behind", at_s=12.0))
    assert judge(Objective.parse("fell_behind<1"), recorder, None).verdict == "fail"
    assert judge(Objective.parse("fell_behind<2"), recorder, None).verdict == "pass"
