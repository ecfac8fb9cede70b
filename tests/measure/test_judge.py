"""A verdict has three values, and no data, drift or a late generator never passes."""

import numpy as np
import pytest

from metronome_cli.measure.judge import (
    TrialEvidence,
    batches_to_settle,
    drift_reason,
    is_proved,
    judge,
    lateness_reason,
    overall_verdict,
)
from metronome_cli.measure.ledger import FrameRecord, Ledger
from metronome_cli.measure.objective import Objective

P99 = Objective.parse("p99<80ms")


def ledger_of(latencies_ms, *, delivered=1, late_s=0.0, limits=(80.0,)):
    ledger = Ledger(80.0, limits)
    for index, latency in enumerate(latencies_ms):
        due = index * 0.08
        ledger.add(
            [FrameRecord(0, due, due + latency / 1e3, 1, delivered)], {"decode": latency / 1e3}, late_s
        )
    return ledger


def verdict(latencies_ms, objective=P99, **kwargs):
    return judge(objective, TrialEvidence(ledger_of(latencies_ms, **kwargs), 0.4, 0)).verdict


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
def test_p99_needs_its_steps(good, bad, expected):
    assert verdict([20.0] * good + [90.0] * bad) == expected


@pytest.mark.parametrize(
    ("objective", "good", "bad", "expected"),
    [
        ("p99<80ms", 79, 1, True),
        ("p99<80ms", 78, 2, False),
        ("p99<80ms", 298, 3, True),
        ("p50<80ms", 60, 40, True),
        ("p50<80ms", 45, 55, False),
        ("p50<80ms", 10, 70, False),
        ("max<80ms", 80, 0, True),
        ("max<80ms", 79, 1, False),
        ("p99<80ms", 0, 0, False),
    ],
)
def test_a_short_look_is_promising_with_as_many_bad_steps_as_are_allowed_or_one(
    objective, good, bad, expected
):
    evidence = TrialEvidence(ledger_of([20.0] * good + [90.0] * bad), 0.4, 0)
    assert judge(Objective.parse(objective), evidence).promising is expected


def test_an_open_verdict_says_how_many_more_steps_would_settle_it():
    result = judge(P99, TrialEvidence(ledger_of([20.0] * 400 + [90.0]), 0.4, 0))
    missing = batches_to_settle(1, 401, 0.01, 0.99)
    assert result.steps_missing == missing
    assert is_proved(1, 401 + missing, 0.01, 0.99)
    assert not is_proved(1, 400 + missing, 0.01, 0.99)


def test_looking_again_and_again_does_not_wear_the_confidence_down():
    rng = np.random.default_rng(7)
    passed = 0
    for _ in range(600):
        bad = np.cumsum(rng.random(1000) < 0.01)
        passed += any(is_proved(int(bad[n - 1]), n, 0.01, 0.99) for n in range(459, 1001, 35))
    assert passed / 600 < 0.025


def test_misses_are_judged_by_their_own_share():
    objective = Objective.parse("misses<0.1%")
    assert verdict([20.0] * 459, objective) == "inconclusive"
    assert verdict([20.0] * 4603, objective) == "pass"


def test_silence_fails_even_when_every_frame_is_on_time():
    objective = Objective.parse("empty<1%")
    assert verdict([5.0] * 500, objective, delivered=0) == "fail"
    assert verdict([5.0] * 500, P99, delivered=0) == "pass"


def test_frames_of_one_batch_count_as_one_step():
    ledger = Ledger(80.0, [80.0])
    for step in range(20):
        records = [FrameRecord(s, step * 0.08, step * 0.08 + 0.01, 1, 1) for s in range(30)]
        ledger.add(records, {}, 0.0)
    assert ledger.total.frames == 600
    assert judge(P99, TrialEvidence(ledger, 0.4, 0)).verdict == "inconclusive"


def test_extremes_fail_once_and_hold_only_with_enough_steps():
    objective = Objective.parse("max<100ms")
    assert verdict([20.0] * 459, objective) == "pass"
    assert verdict([20.0] * 100, objective) == "inconclusive"
    assert verdict([20.0] * 459 + [101.0], objective) == "fail"


def test_drift_and_a_late_generator_never_pass():
    judgements = [judge(P99, TrialEvidence(ledger_of([20.0] * 500), 0.4, 0))]
    assert overall_verdict(judgements)[0] == "pass"
    rising = ledger_of([10.0 + index * 0.1 for index in range(500)])
    assert overall_verdict(judgements, drift_reason(rising), None)[0] == "inconclusive"
    late = ledger_of([20.0] * 500, late_s=0.02)
    assert overall_verdict(judgements, None, lateness_reason(late))[0] == "inconclusive"


def test_a_late_generator_takes_the_blame_for_timing_but_not_for_silence():
    late = "the load generator itself was late: p99 30.0 ms"
    slow = [judge(P99, TrialEvidence(ledger_of([90.0] * 500), 0.4, 0))]
    assert overall_verdict(slow, None, late)[0] == "inconclusive"
    silent = [judge(Objective.parse("empty<1%"), TrialEvidence(ledger_of([5.0] * 500, delivered=0), 1.0, 0))]
    assert overall_verdict(silent, None, late)[0] == "fail"


def test_no_objective_is_no_pass():
    assert overall_verdict([])[0] == "inconclusive"
