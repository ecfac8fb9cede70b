"""A process that was stopped blames itself, not the engine; one stretch is enough, wherever it fell."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from metronome_cli.capacity.search import REPEATS
from metronome_cli.capacity.search_setup import search_for
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.core.session import FrameBatch, FrameResult
from metronome_cli.measure.verdict import lateness_reason, stall_reason
from tests.capacity.builders import always, context_on, load_on
from tests.measure.test_verdict import recorder_of

needs_stop = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")


def measured(where, stopped_s):
    """The point of a process that was stopped for so long while it measured."""
    command = [sys.executable, "-m", "tests.faults.suspended", where]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout.readline() == "measuring\n"
        if stopped_s:
            process.send_signal(signal.SIGSTOP)
            time.sleep(stopped_s)
            process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=300)
    return json.loads(out)


@needs_stop
@pytest.mark.slow
@pytest.mark.parametrize("where", ["between", "within"])
def test_a_suspended_process_is_its_own_lateness(where):
    point = measured(where, 2.5)
    assert (point["verdict"], point["ended_by"], point["limited_by"]) == (
        "inconclusive",
        "load_generator",
        "load_generator",
    )
    assert "this process was not scheduled" in point["reason"]


@needs_stop
@pytest.mark.slow
def test_a_process_that_was_not_stopped_says_nothing_of_the_kind():
    assert "not scheduled" not in measured("within", 0.0)["reason"]


class Stops:
    """A pulse of a process that stands still for `still_s` at its nth beat."""

    def __init__(self, nth, still_s=3.0):
        self.still_s, self._nth, self._stretch_s, self._beats = 0.0, nth, still_s, 0

    def beat(self):
        self._beats += 1
        if self._beats == self._nth:
            self.still_s += self._stretch_s
        return self.still_s


class Measured:
    """The simulated target, as if its steps had been timed by the driver."""

    def __init__(self, target):
        self._target = target

    def step(self, frames):
        from dataclasses import replace

        return replace(self._target.step(frames), compute_s=None)

    def __getattr__(self, name):
        return getattr(self._target, name)


def context_that_stops(nth, **changes):
    return context_on(always(0.004), stalls=Stops(nth), engine=Measured, **changes)


@pytest.mark.parametrize("nth", [4, 7, 12])
def test_a_point_in_which_the_process_stood_still_is_given_up_and_open(nth):
    point = Trial(context_that_stops(nth), TrialPlan(4, "confirm", max_batches=1000)).run(into=[]).result
    assert (point.verdict, point.ended_by) == ("inconclusive", "load_generator")
    assert "3.0 s" in point.reason
    assert point.batches < 459


def test_a_search_measures_such_a_point_again_and_finds_the_same():
    def found(context):
        from metronome_cli.capacity.aimd import AimdGains

        trials = []
        search = search_for(context, AimdGains(), "bisect", soak=False, budget_s=5.0, into=trials)
        return search.run(), trials

    calm, stopped = context_on(always(0.004), max_sessions=4), context_that_stops(40, max_sessions=4)
    (expected, _), (answer, points) = found(calm), found(stopped)
    assert (answer.safe, answer.binding) == (expected.safe, expected.binding)
    spoilt = [point for point in points if point.ended_by == "load_generator"]
    assert 1 <= len(spoilt) <= REPEATS


def test_one_batch_that_the_generator_began_half_a_second_late_is_enough():
    recorder = recorder_of([90.0] * 2000)
    assert stall_reason(recorder) is None
    late = FrameBatch([FrameResult(0, 160.0, 160.7, 1, 1)], late_s=0.7, delay_s=0.7)
    recorder.record(late)
    assert "one batch by 700 ms" in lateness_reason(recorder)


def test_a_slow_model_is_still_the_models_fault():
    load = load_on(lambda n: 2.0)
    load.open()
    load.run_until(30.0)
    assert stall_reason(load.recorder) is None
