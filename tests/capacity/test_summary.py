"""The sentence that answers: one basis for its figures, and how long it was really run."""

import pytest

from metronome_cli.capacity.summary import summarize
from metronome_cli.results.measured import LatencyMs
from tests.report.builders import capacity_report, collapse_report, objective, point


def said(report, at=0):
    return summarize(report, report.capacity.trials[at])


@pytest.mark.parametrize(("ran_s", "words"), [
    (11.25, "no session produced output. Ended early, after 11 s. Limited by: memory."),
    (100.0, "no session produced output. Ended early, after 100 s. Limited by: memory."),
    (120.0, "no session produced output. Limited by: memory."),
])  # fmt: skip
def test_a_run_that_its_collapse_ended_says_after_how_long(ran_s, words):
    report = collapse_report()
    report.capacity.trials[0].duration_s = ran_s
    assert said(report).startswith("Fail: 16 sessions for 2 min: the KV pool was full at 40")
    assert words in said(report)


@pytest.mark.parametrize(("purpose", "words"), [
    ("screen", "25 sessions failed a screening trial (p99 82 ms)"),
    ("memory", "25 sessions failed the memory trial (p99 82 ms)"),
    ("exceed", "25 sessions failed within 8 s (p99 82 ms)"),
    ("confirm", "25 sessions failed within 8 s (p99 82 ms)"),
])  # fmt: skip
def test_what_fails_in_a_search_says_in_which_kind_of_run(purpose, words):
    report = capacity_report()
    report.capacity.trials[3] = point(25, "fail", purpose, duration_s=8.2)
    assert words in said(report, 2)


def test_the_evidence_is_of_steps_alone():
    """Its percentile, its misses and its confidence; a table's percentile over frames is another figure."""
    report = capacity_report()
    calm = point(24, latency_ms=LatencyMs(p99=39.0), objectives=[objective(measured=42.4)])
    late = calm.model_copy(update={"misses": 40, "late_batches": 2})
    assert (
        "(p99 latency 42 ms < 80 ms, 0 misses in 4,800 frames of 1,200 batches, 99 % confidence;"
        in summarize(report, calm)
    )
    assert ", 40 misses in 4,800 frames of 1,200 batches, 99 % confidence;" in summarize(report, late)


def test_a_share_says_of_what():
    failed = [
        objective("misses<1%", "fail", 0.014, 0.01, "fraction"),
        objective(verdict="fail", measured=146.0),
    ]
    report = collapse_report()
    report.capacity.trials = [point(16, "fail", "single", objectives=failed)]
    assert "misses 1.4 % of frames, p99 146 ms." in said(report)


def test_an_hour_is_not_told_in_milliseconds():
    slow = objective("p99<1h", measured=1_800_000.0, limit=3_600_000.0)
    assert "p99 latency 30 min < 1 h, " in summarize(capacity_report(), point(24, objectives=[slow]))
