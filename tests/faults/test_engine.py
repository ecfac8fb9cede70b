"""The Nth engine step raises, makes no numbers, or finds no memory: what was measured stays, and the fault is named."""

import numpy as np
import pytest
import torch

from metronome_cli.backends.in_process.backend import InProcessBackend
from metronome_cli.backends.in_process.engine import InProcessModel
from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.capacity_run import run_capacity
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.capacity.search_setup import search_for
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.errors import DeviceMemoryError, EngineError
from metronome_cli.engine.failures import as_engine_error, is_out_of_memory
from metronome_cli.models.decoding import Vocabulary
from metronome_cli.report.plain_text import render_text
from tests.capacity.builders import ObserverLog, always, context_on, small_profile
from tests.engine.toy import ToyModel, ToyOutput, engine, frame

CUDA_WORDS = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 7.78 GiB."
CPU_WORDS = (
    "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "17592186044416 bytes. Error code 12 (Cannot allocate memory)"
)
NO_MEMORY = [torch.OutOfMemoryError(CUDA_WORDS), RuntimeError(CPU_WORDS), MemoryError()]


class Faulty:
    """A model that goes wrong at its nth frame: `fault(model)` before it, `spoil(outputs)` after."""

    def __init__(self, model, nth, fault=lambda model: None, spoil=lambda outputs: outputs):
        self._model, self._left, self._fault, self._spoil = model, nth, fault, spoil

    def frame(self, *args):
        self._left -= 1
        if self._left:
            return self._model.frame(*args)
        self._fault(self._model)
        return self._spoil(self._model.frame(*args))

    def __getattr__(self, name):
        return getattr(self._model, name)


def raising(error):
    def fault(model):
        raise error

    return fault


def poisoned_head(model):
    model.vocabulary = Vocabulary(
        model.vocabulary.embedding, lambda hidden: torch.full((len(hidden), 256), torch.nan)
    )


def poisoned_ears(model):
    model.encode = lambda slots, audio: torch.full((len(slots), 2, 128), torch.nan)


FAULTS = {
    "an exception": (raising(ZeroDivisionError("division by zero")), "division by zero"),
    "a kernel's long complaint": (
        raising(RuntimeError("device assert\nat line 1\nat line 2")),
        "device assert",
    ),
    "NaN in a hidden state": (poisoned_ears, "a hidden state is not finite"),
    "NaN in the logits": (poisoned_head, "a logit is not finite"),
}


@pytest.fixture(scope="module")
def smoke():
    return InProcessModel.load(load_profile("smoke"), device="cpu", seed=0)


def run(smoke, nth, fault, sessions=3):
    def build(plan, observer):
        def make(profile, slots):
            target = smoke.fresh_engine(profile, slots)
            if slots == sessions:
                target._engine.model = Faulty(target._engine.model, nth, fault)
            return target

        return InProcessBackend(make, plan.profile)

    watcher = ObserverLog()
    plan = CapacityPlan(profile=load_profile("smoke"), clock="virtual", sessions=sessions)
    return run_capacity(plan, watcher, build=build), watcher


@pytest.mark.parametrize("nth", [1, 9, 60])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_the_nth_step_ends_the_run_with_its_name(smoke, name, nth):
    fault, words = FAULTS[name]
    report, _ = run(smoke, nth, fault)
    assert (report.status, report.exit_code) == ("failed", 1)
    assert words in report.error
    assert "\n" not in report.error
    assert words in render_text(report)
    if nth == 60:  # four steps prime the engine, twelve warm it up
        point = report.capacity.trials[-1]
        assert (point.ended_by, point.verdict) == ("backend_error", "fail")
        assert point.batches > 20


@pytest.mark.parametrize("error", NO_MEMORY, ids=["device", "processor", "python"])
def test_out_of_memory_is_a_failing_point_that_memory_limits(smoke, error):
    report, _ = run(smoke, 60, raising(error))
    assert (report.status, report.verdict, report.exit_code) == ("complete", "fail", 3)
    point = report.capacity.trials[-1]
    assert (point.ended_by, point.limited_by) == ("backend_error", "memory")
    assert point.reason.startswith("out of device memory in a frame step")
    assert point.batches > 20


class Small:
    """The simulated target on a device that has memory for so many sessions."""

    def __init__(self, target, most):
        self._target, self._most, self._open = target, most, 0

    def open(self, age_s=0.0):
        if self._open == self._most:
            raise DeviceMemoryError("out of device memory in opening a session")
        self._open += 1
        return self._target.open(age_s)

    def close(self, slot):
        self._open -= 1
        self._target.close(slot)

    def __getattr__(self, name):
        return getattr(self._target, name)


@pytest.mark.parametrize("method", ["ramp", "bisect"])
def test_a_search_goes_on_below_the_sessions_that_device_memory_did_not_hold(method):
    context = context_on(always(0.004), max_sessions=64, engine=lambda made: Small(made, 20))
    found = search_for(context, AimdGains(), method, soak=False, budget_s=5.0, into=[]).run()
    assert found.safe is not None
    assert found.safe <= 20 < found.first_failing
    assert found.binding == "memory"


@pytest.mark.parametrize("error", NO_MEMORY)
def test_memory_that_was_not_there_is_known_by_any_of_its_names(error):
    assert is_out_of_memory(error)
    assert isinstance(as_engine_error(error, "a frame step"), DeviceMemoryError)


def test_the_amount_is_told_where_it_is_known():
    assert "20.00 MiB more were wanted" in as_engine_error(NO_MEMORY[0], "a frame step").message


@pytest.mark.parametrize(
    "error", [RuntimeError("shape mismatch"), ValueError("out of memory of an elephant")]
)
def test_other_faults_are_not_taken_for_it(error):
    assert not isinstance(as_engine_error(error, "a frame step"), DeviceMemoryError)


def test_audio_that_is_not_finite_is_a_fault_not_an_answer():
    model = Faulty(ToyModel(), 2, spoil=lambda outputs: [ToyOutput([1], np.array([0.0, np.inf], np.float32))])
    eng = engine(model=model)
    slot = eng.open()
    eng.step([frame(slot)])
    with pytest.raises(EngineError, match="output audio is not finite"):
        eng.step([frame(slot)])


def test_a_slot_that_the_model_cannot_open_frees_its_blocks():
    model = ToyModel()
    eng = engine(model=model)
    model.open = raising(torch.OutOfMemoryError(CUDA_WORDS))
    with pytest.raises(torch.OutOfMemoryError):
        eng.open(9)
    del model.open
    assert eng.pool().used_blocks == 0
    assert eng.step([frame(eng.open(9))]).outcomes[0].delivered


def test_what_was_measured_before_is_in_the_point():
    def fail(count):
        if count == 100:
            raise EngineError("a logit is not finite")

    from metronome_cli.backends.simulated_engine import SimulatedEngine

    profile = small_profile()
    backend = InProcessBackend(
        lambda profile, slots: SimulatedEngine(profile, slots, always(0.004), before_step=fail), profile
    )
    context = context_on(always(0.004), profile, backend=backend)
    points = []
    with pytest.raises(EngineError, match="not finite"):
        Trial(context, TrialPlan(4, "confirm", max_batches=1000)).run(into=points)
    assert points[0].reason == "a logit is not finite"
    assert points[0].batches == 100 - 1 - 4 - 12
