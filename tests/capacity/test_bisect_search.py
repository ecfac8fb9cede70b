"""The search finds what the simulated engine was built to hold, and names what binds."""

import pytest

from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.bisect_search import Search
from tests.capacity.builders import ObserverLog, context_on, small_profile

GAINS = AimdGains()


def search(step_s, method="ramp", **kwargs):
    found = Search(context_on(step_s, **kwargs), GAINS, method, soak=False, confirm_steps=1000)
    return found, found.run()


def linear(base_s, each_s):
    return lambda batch: base_s + each_s * batch


@pytest.mark.parametrize("method", ["ramp", "bisect"])
def test_deadline_binds_within_one_step_of_the_load_that_saturates(method):
    searched, found = search(linear(0.004, 0.0012), method)
    assert found.binding == "deadline"
    assert found.safe < found.first_failing <= found.safe + 2 * found.step
    saturation = (0.080 - 0.004) / 0.0012  # a step a period, everybody in it
    assert 0.45 * saturation < found.safe < 1.02 * saturation
    roles = {point.purpose for point in searched.points}
    assert "confirm" in roles


def test_both_methods_agree():
    _, ramp = search(linear(0.004, 0.0012), "ramp")
    _, bisect = search(linear(0.004, 0.0012), "bisect")
    assert abs(ramp.safe - bisect.safe) <= max(ramp.step, bisect.step)


def test_memory_binds_when_caches_outgrow_the_pool_first():
    profile = small_profile(policy="unbounded", blocks=2000)
    searched, found = search(linear(0.002, 0.0001), profile=profile, length_s=120.0)
    fits = 2000 * 16 // (120 * 43.75)
    assert found.binding == "memory"
    assert found.safe == pytest.approx(fits, abs=1)
    assert found.first_failing == found.safe + 1
    assert any(p.verdict == "fail" for p in searched.points if p.sessions == found.first_failing)


def test_seats_bind_when_there_are_fewer_than_would_do():
    _, found = search(linear(0.002, 0.0001), max_sessions=16)
    assert (found.safe, found.first_failing, found.binding) == (16, None, "slots")


def test_one_session_that_fails_is_infeasible():
    _, found = search(linear(0.1, 0.0))
    assert found.safe is None
    assert found.first_failing == 1
    assert found.binding == "deadline"


def test_one_session_that_fails_where_more_held_is_the_machine():
    """Every confirmation falls into a minute in which the machine is fifty times as slow."""
    observer = ObserverLog()

    def step_s(batch):
        slow = 50 if observer.phases[-1:] == ["confirm"] else 1
        return slow * linear(0.004, 0.0012)(batch)

    searched, found = search(step_s, observer=observer)
    assert any(p.sessions > 1 and p.verdict != "fail" for p in searched.points if p.purpose == "screen")
    assert (found.safe, found.first_failing, found.binding) == (None, None, "deadline")
    assert "1 session failed, though" in found.undecided


def test_what_is_safe_was_confirmed_and_what_fails_was_seen_to_fail():
    searched, found = search(linear(0.004, 0.0012))
    safe = [p for p in searched.points if p.sessions == found.safe and p.purpose in ("confirm", "exceed")]
    failing = [p for p in searched.points if p.sessions == found.first_failing]
    assert any(p.verdict == "pass" and p.batches >= 459 for p in safe)
    assert any(p.verdict == "fail" for p in failing)


class BusyInALook:
    """A step time that is much longer a few times in the first short look, as by a busy neighbour."""

    def __init__(self, base_s, each_s, observer):
        self._step_s, self._observer, self._calls = linear(base_s, each_s), observer, 0

    def __call__(self, batch):
        if self._observer.phases.count("screen") == 1:
            self._calls += 1
        return 0.3 if 40 <= self._calls < 44 else self._step_s(batch)


def test_one_bad_moment_in_a_look_does_not_end_the_way_up():
    _, calm = search(linear(0.004, 0.0012))
    observer = ObserverLog()
    searched, disturbed = search(BusyInALook(0.004, 0.0012, observer), observer=observer)
    first, second = [p for p in searched.points if p.purpose == "screen"][:2]
    assert (first.verdict, first.sessions) == ("fail", second.sessions)
    assert abs(disturbed.safe - calm.safe) <= 2 * calm.step


def test_a_confirmation_that_cannot_pass_any_more_is_given_up():
    class Every:
        calls = 0

        def __call__(self, batch):
            self.calls += 1
            return 0.09 if self.calls % 60 == 0 else 0.002

    searched, found = search(Every(), max_sessions=8)
    assert found.safe is None
    confirms = [p for p in searched.points if p.purpose == "confirm" and p.verdict == "inconclusive"]
    assert confirms
    assert all(150 <= p.batches < 459 for p in confirms)


def test_a_spent_budget_leaves_what_lies_between_open():
    context = context_on(linear(0.004, 0.0012))
    searched = Search(context, GAINS, "ramp", soak=False, confirm_steps=1000, budget_s=1e-6)
    found = searched.run()
    assert found.safe is not None
    assert found.first_failing > found.safe
    following = [p for p in searched.points if p.purpose == "exceed"]
    assert len(following) <= 1  # only where no number was yet seen to fail


def test_out_of_time_without_a_failure_leaps_to_one():
    context = context_on(linear(0.004, 0.0012))
    searched = Search(context, GAINS, "ramp", soak=False, confirm_steps=1000, budget_s=1e-6)
    searched.found.safe, searched.found.step = 20, 1
    searched._show_the_next_fails()
    found = searched.found
    assert (found.safe, found.binding, found.undecided) == (20, "deadline", None)
    assert found.first_failing > 30
    assert {point.purpose for point in searched.points} == {"screen"}


def test_the_leap_begins_above_what_was_seen_not_to_fail():
    context = context_on(linear(0.004, 0.0012))
    searched = Search(context, GAINS, "ramp", soak=False, confirm_steps=1000, budget_s=1e-6)
    searched.found.safe, searched.found.step = 20, 1
    searched._look(40)
    searched._show_the_next_fails()
    assert [point.sessions for point in searched.points if point.sessions > 20][:2] == [40, 60]


@pytest.mark.parametrize(
    ("calm", "first"),
    [(set(), 27), ({20}, 20), ({14, 20}, 20), ({10}, 27), ({29}, 27), ({40}, 27)],
)
def test_what_is_confirmed_first_stayed_well_within_the_limit_in_its_look(calm, first):
    searched = Search(context_on(linear(0.004, 0.0012)), GAINS, "ramp", soak=False, confirm_steps=1000)
    searched.found.step = 3
    searched._calm = calm
    assert searched._with_margin(30) == first


class EveryHundredth:
    """A share of late steps at which p99 is neither proved nor refuted."""

    calls = 0

    def __call__(self, batch):
        self.calls += 1
        return 0.041 if self.calls % 100 == 0 else 0.002


@pytest.mark.parametrize(("first_failing", "undecided"), [(40, None), (None, "neither hold nor fail")])
def test_what_neither_holds_nor_fails_is_open_where_a_failure_is_known(first_failing, undecided):
    context = context_on(EveryHundredth(), objectives=("p99<40ms",))
    searched = Search(context, GAINS, "ramp", soak=False, confirm_steps=500)
    found = searched.found
    found.safe, found.first_failing = 10, first_failing
    searched._show_the_next_fails()
    assert {point.verdict for point in searched.points} == {"inconclusive"}
    assert (found.safe, found.first_failing) == (10, first_failing)
    assert found.undecided is None if undecided is None else undecided in found.undecided
