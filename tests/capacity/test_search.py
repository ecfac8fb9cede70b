"""The search finds what the simulated engine was built to hold, and names what limits it."""

import pytest

from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.search_setup import latency_limits, search_for
from metronome_cli.measure.objective import Objective
from tests.capacity.builders import context_on, small_profile
from tests.capacity.simulated_machine import MACHINES, Machine, true_sessions
from tests.capacity.simulated_search import search as simulated


def search(step_s, method="ramp", budget_s=2.0, soak=False, **kwargs):
    trials = []
    searched = search_for(
        context_on(step_s, **kwargs), AimdGains(), method, soak=soak, budget_s=budget_s, into=trials
    )
    return trials, searched.run()


def linear(base_s, each_s):
    return lambda batch: base_s + each_s * batch


@pytest.mark.parametrize("method", ["ramp", "bisect"])
def test_the_deadline_limits_near_the_load_that_saturates(method):
    trials, found = search(linear(0.004, 0.0012), method)
    assert found.binding == "deadline"
    assert found.safe < found.first_failing <= 1.3 * found.safe
    saturation = 0.080 / 0.0012  # batches grow without bound
    assert 0.45 * saturation < found.safe < 1.02 * saturation
    assert found.estimate.low <= found.first_failing
    assert found.estimate.high >= found.safe
    assert "confirm" in {trial.purpose for trial in trials}


def test_what_is_safe_was_confirmed_and_what_fails_was_seen_to_fail():
    trials, found = search(linear(0.004, 0.0012))
    safe = [t for t in trials if t.sessions == found.safe and t.purpose == "confirm"]
    assert any(t.verdict == "pass" and t.batches >= 459 for t in safe)
    assert any(t.verdict == "fail" for t in trials if t.sessions == found.first_failing)


def test_memory_limits_if_caches_outgrow_the_pool_first():
    profile = small_profile(policy="unbounded", blocks=2000)
    trials, found = search(linear(0.002, 0.0001), profile=profile, length_s=120.0)
    assert (found.binding, found.safe) == ("memory", pytest.approx(2000 * 16 // (120 * 43.75), abs=1))
    assert found.first_failing == found.safe + 1
    assert any(t.verdict == "fail" for t in trials if t.sessions == found.first_failing)


def test_slots_limit_if_there_are_fewer_than_would_do():
    _, found = search(linear(0.002, 0.0001), max_sessions=16)
    assert (found.safe, found.first_failing, found.binding) == (16, None, "slots")


def test_one_session_that_fails_by_its_own_load_is_a_failure():
    _, found = search(linear(0.1, 0.0))
    assert (found.safe, found.first_failing, found.binding) == (None, 1, "deadline")


def test_a_spent_budget_still_confirms_a_number():
    _, found = search(linear(0.004, 0.0012), budget_s=1e-6)
    assert found.safe is not None


def test_the_estimate_is_about_the_objectives_on_latency():
    given = [Objective.parse(text) for text in ("p99<80ms", "misses<2%", "empty<1%", "max<1s")]
    assert latency_limits(given, 100.0) == [(80.0, pytest.approx(0.01)), (100.0, 0.02)]


# -- simulated machines with known truth (all of them with many seeds: benchmarks/nstar.py) ----------------------------


@pytest.mark.parametrize("name", ["quiet", "drift", "ceiling"])
def test_the_interval_holds_the_truth_and_no_claim_is_wrong(name):
    truth, margin = true_sessions(MACHINES[name], trials=12), 0.05  # of the truth's own simulation
    runs = [simulated(MACHINES[name], seed).found for seed in range(5)]
    held = [
        run.estimate.low <= (1 + margin) * truth and run.estimate.high >= (1 - margin) * truth for run in runs
    ]
    assert sum(held) >= 4
    assert sum(run.safe is not None and run.safe > (1 + margin) * truth for run in runs) <= 1
    assert (
        sum(run.first_failing is not None and run.first_failing < (1 - margin) * truth for run in runs) <= 1
    )
    assert any(run.safe is not None and run.safe >= 0.8 * truth for run in runs)


def test_interference_is_told_from_the_load():
    found = simulated(Machine(lapses=0.03), 1).found
    assert (found.safe, found.estimate.sessions) == (None, 0)
    assert found.undisturbed.sessions >= 4
    assert 0.01 < found.interference < 0.2
    assert "no number of sessions holds on this machine as it is" in found.undecided


def test_bursts_are_told_in_seconds_and_nothing_is_claimed():
    found = simulated(Machine(burst=(5.0, 12.0, 3.0)), 0).found
    assert (found.safe, found.first_failing) == (None, None)
    assert 0.5 <= found.disturbed_s <= found.measured_s
    assert "slower for another reason" in found.undecided


def test_the_same_machine_gives_the_same_answer_twice():
    assert simulated(MACHINES["quiet"], 3).found == simulated(MACHINES["quiet"], 3).found
