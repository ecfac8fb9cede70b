"""What a run says of itself beforehand, against what it then does."""

import json
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from metronome_cli.backends.memory_check import memory_of
from metronome_cli.capacity.capacity_run import run_capacity
from metronome_cli.capacity.context import batches_to_confirm
from metronome_cli.capacity.dry_run import outline
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.capacity.search_setup import search_for
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.cli.main import run
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.errors import ExitCode
from metronome_cli.core.quantities import format_duration
from tests.capacity.builders import always, builder_of, context_on, small_profile

SCRIPT = """
import runpy, sys
try:
    runpy.run_module("metronome_cli", run_name="__main__")
except SystemExit as ended:
    assert not ended.code, ended.code
assert not {"torch", "transformers", "soundfile"} & set(sys.modules), "loaded"
"""


@pytest.mark.parametrize(
    "flags", [[], ["--sessions", "8"], ["--compare-policies"], ["--sessions", "3", "--repeat", "4"]]
)
def test_nothing_is_loaded(flags):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "capacity", "--profile", "smoke", "--dry-run", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Dry run: no model was loaded and nothing was measured." in done.stdout
    assert "KV pool" in done.stdout
    assert f"{load_profile('smoke').kv_pool.blocks} blocks" in done.stdout


def test_a_judged_trial_takes_no_longer_than_estimated():
    context = context_on(always(0.01))
    plan = CapacityPlan(profile=context.profile, sessions=1, clock="virtual", session_length_s=60.0)
    judged = outline(plan).course.phases[0]
    steps = batches_to_confirm(context.batches_to_prove, plan.confirm_steps)
    point = Trial(context, TrialPlan(1, "single", max_batches=steps, until="end")).run(into=[]).result
    window_s = max(1.0, 12 * context.period_s)
    assert (
        0 < point.duration_s <= judged.most_s + 2 * window_s
    )  # one replaces its session, the last ends whole


@pytest.mark.parametrize("policy", ["window(64, 16)", "unbounded"])
def test_a_search_keeps_within_the_estimate(policy):
    context = context_on(lambda batch: 0.004 + 0.0012 * batch, small_profile(policy=policy), max_sessions=64)
    plan = CapacityPlan(profile=context.profile, clock="virtual", session_length_s=60.0, max_sessions=64)
    ahead = outline(plan)
    trials = []
    search = search_for(context, _gains(), "ramp", soak=False, budget_s=2.0, into=trials)
    search.run()
    took = search.ramp.windows[-1].t_s + sum(trial.duration_s for trial in trials)
    assert ahead.course.least_s <= took <= ahead.course.most_s


@pytest.mark.parametrize(
    ("period", "given_s", "budget_s"), [("80ms", None, 40.0), ("2s", None, 1000.0), ("2s", 300.0, 300.0)]
)
def test_a_search_in_real_time_keeps_to_its_budget_and_says_so(period, given_s, budget_s):
    profile = small_profile(frame={"period": period, "sample_rate": 16000})
    course = outline(CapacityPlan(profile, session_length_s=600.0, budget_s=given_s)).course
    assert (course.budget_s, course.usual_s) == (budget_s, budget_s)
    assert dict(course.rows())["budget"].startswith(f"{format_duration(budget_s)} for the search")
    assert dict(course.rows())["duration"].startswith(f"about {format_duration(budget_s)} of real time")
    assert {phase.what: phase for phase in course.phases}["trials"].most_s <= budget_s
    longer = outline(CapacityPlan(profile, session_length_s=600.0, budget_s=2 * budget_s)).course
    assert course.usual_s <= course.most_s <= longer.most_s


def test_a_soak_takes_at_least_the_session_length():
    course = outline(CapacityPlan(small_profile(), session_length_s=600.0, soak=True)).course
    assert course.budget_s == 40.0
    assert 600.0 < course.usual_s <= 601.0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "the first that connects: realtime, moshi-server, moshi"),
        (
            ["--protocol", "vllm-realtime", "--sessions", "3"],
            "3 sessions, a frame of 80 ms at 16,000 Hz each",
        ),
        (["--sessions", "1", "--session-length", "5m"], "judges 1 session for 5 min"),
        (["--slo", "p99<50ms", "--workers", "2"], "p99<50ms"),
        (["--workers", "1"], "in 1 process"),
    ],
)
def test_the_dry_run_of_a_server_states_the_load_and_opens_no_connection(flags, says, capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        target = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        assert run(["capacity", "--url", target, "--dry-run", *flags]) == 0
        with pytest.raises(TimeoutError):
            listener.accept()
    said = " ".join(capsys.readouterr().out.split())
    assert says in said
    assert f"server {target}" in said
    assert "not known whether the server responds" in said
    assert said.endswith("Dry run: no connection was opened.")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--url", "nonsense://x"], "is not an address"),
        (
            ["--url", "ws://h", "--repeat", "2", "--sessions", "1"],
            "--repeat is for the engine in this process",
        ),
        (["--url", "ws://h", "--ca-file", "/nowhere.pem"], "/nowhere.pem"),
    ],
)
def test_what_a_server_cannot_be_asked_is_refused_beforehand_too(flags, message, capsys):
    assert run(["capacity", "--dry-run", *flags]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def _gains():
    from metronome_cli.capacity.aimd import AimdGains

    return AimdGains()


def test_memory_adds_up_to_what_the_profile_says():
    profile = small_profile(blocks=100)
    memory = memory_of(profile, 4)
    assert memory.pool == 100 * 16 * profile.shape.kv_bytes_per_token
    assert memory.total == memory.weights + memory.pool + memory.activations + memory.session_state


def test_as_json_it_has_the_same_facts():
    plan = CapacityPlan(
        profile=small_profile(policy="unbounded"),
        window=CachePolicySpec.parse("window(64, 16)"),
        compare=True,
    )
    ahead = outline(plan)
    data = json.loads(ahead.as_json())
    assert data["schema"] == "metronome.plan/1"
    assert [phase["what"] for phase in data["phases"]] == ["bounded", "unbounded", "unbounded, memory guard"]
    assert data["duration"]["most_s"] == pytest.approx(ahead.course.most_s)
    assert data["memory"]["total"] == ahead.memory.total


def test_a_replay_takes_as_long_as_what_was_recorded(tmp_path):
    kept = tmp_path / "load.jsonl"
    plan = CapacityPlan(
        profile=small_profile(), clock="virtual", sessions=3, session_length_s=20.0, record=kept
    )
    run_capacity(
        replace(plan, soak=True),
        build=builder_of(lambda n: 0.01),
    )
    ahead = outline(replace(plan, sessions=None, session_length_s=None, record=None, replay=kept))
    assert ahead.course.most_s == 20.0
    assert ahead.session_length_s == 20.0
    assert ahead.memory.sessions == 3
    assert str(kept) in ahead.course.does
