"""The run as a whole, on the simulated target: a plan in, a report that keeps its word out."""

import json

import jsonschema
import numpy as np
import pytest
import soundfile

from metronome_cli.capacity.capacity_run import run_capacity
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.core.errors import EngineError, NoAudioError
from metronome_cli.core.stop import StopRequest
from metronome_cli.results.schema import report_schema
from tests.capacity.builders import ObserverLog, builder_of, small_profile


@pytest.fixture
def speech(tmp_path):
    rng = np.random.default_rng(0)
    soundfile.write(tmp_path / "talk.wav", 0.1 * rng.standard_normal(48_000), 16_000)
    return tmp_path


def run(speech, step_s=lambda n: 0.004 + 0.0012 * n, *, before_step=lambda count: None, stop=None, **plan):
    plan = {"profile": small_profile(), "audio": (speech,), "clock": "virtual", **plan}
    watcher = ObserverLog()
    report = run_capacity(CapacityPlan(**plan), watcher, stop, builder_of(step_s, before_step))
    jsonschema.validate(json.loads(report.model_dump_json(by_alias=True)), report_schema())
    return report, watcher


def test_the_answer_names_what_is_safe_and_what_limits(speech):
    report, _ = run(speech)
    capacity = report.capacity
    assert (report.status, report.verdict, report.exit_code) == ("complete", "pass", 0)
    assert capacity.safe_sessions < capacity.lowest_failing_sessions
    assert capacity.limited_by == "deadline"
    assert report.summary.startswith(
        f"Safe concurrency: {capacity.safe_sessions} sessions for 10 min (confirmed; estimate "
    )
    assert "Limited by: deadline" in report.summary
    assert capacity.controller["target"] == 0.7


def test_silence_is_an_objective_even_when_only_latency_was_asked_for(speech):
    from metronome_cli.measure.objective import Objective

    report, _ = run(
        speech,
        profile=small_profile(policy="unbounded", blocks=300),
        objectives=(Objective.parse("p99<80ms"),),
        sessions=8,
        session_length_s=60.0,
    )
    assert [o.objective for o in report.objectives] == ["p99<80ms", "empty<1%"]
    assert report.verdict == "fail"
    assert report.exit_code == 3
    assert report.capacity.trials[0].ended_by == "pool_full"
    assert "KV pool was full" in report.summary


@pytest.mark.parametrize("nth", [1, 6, 40, 1500])
def test_an_engine_that_fails_at_the_nth_step_leaves_a_report_of_all_before(speech, nth):
    def fail(count):
        nonlocal steps
        steps += 1
        if steps == nth:
            raise EngineError("out of device memory")

    steps = 0
    report, watcher = run(speech, before_step=fail)
    assert (report.status, report.exit_code) == ("failed", 1)
    assert "out of device memory" in report.error
    assert "out of device memory" in report.summary
    assert report.verdict != "pass"
    told = [data for kind, data in watcher.events if kind == "trial"]
    assert [p["sessions"] for p in told] == [p.sessions for p in report.capacity.trials]
    if nth == 1500:
        assert report.capacity.trials
        assert report.capacity.trials[-1].ended_by == "backend_error"


@pytest.mark.parametrize("steps", [1, 30, 300, 800])
@pytest.mark.parametrize("signum", [2, 15])
def test_stopped_in_any_phase_it_reports_what_it_has(speech, steps, signum):
    stop, count = StopRequest(), 0

    def ask(_):
        nonlocal count
        count += 1
        if count == steps:
            stop.request(signum)

    report, _ = run(speech, before_step=ask, stop=stop)
    assert report.status == "interrupted"
    assert report.exit_code == {2: 130, 15: 143}[signum]
    assert report.verdict != "pass"


def test_stopped_while_it_reads_or_loads_it_begins_nothing_more(speech):
    stop = StopRequest()
    stop.request(2)
    report, watcher = run(speech, stop=stop)
    assert (report.status, report.exit_code) == ("interrupted", 130)
    assert report.summary == "Interrupted before anything was measured."
    assert "load" not in watcher.phases


def test_nothing_to_listen_to_is_said_before_anything_is_loaded(tmp_path):
    def build(plan, observer):
        raise AssertionError("loaded")

    (tmp_path / "empty.wav").write_bytes(b"")
    with pytest.raises(NoAudioError):
        run_capacity(CapacityPlan(profile=small_profile(), audio=(tmp_path,)), build=build)


def test_refused_files_are_named_and_the_run_goes_on(speech):
    (speech / "broken.wav").write_bytes(b"not audio")
    report, watcher = run(speech, sessions=4)
    assert [r.file.rpartition("/")[2] for r in report.audio.files_refused] == ["broken.wav"]
    assert any("broken.wav" in notice for notice in watcher.notices)
    assert report.verdict == "pass"


def test_comparisons_state_counts_and_no_verdict(speech):
    report, _ = run(
        speech, profile=small_profile(blocks=600), compare=True, session_length_s=30.0, offered=60
    )
    assert [one.name for one in report.policy_runs] == ["bounded", "unbounded", "unbounded, memory guard"]
    assert report.verdict is None
    assert report.exit_code == 0


def test_the_guard_alone_is_judged(speech):
    report, _ = run(
        speech,
        profile=small_profile(policy="unbounded", blocks=600),
        guard=True,
        session_length_s=30.0,
        offered=60,
    )
    assert report.verdict == "pass"
    assert len(report.policy_runs) == 1
