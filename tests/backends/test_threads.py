"""Threads follow from how busy the machine is and from what the step takes with each number of them."""

import sys
import time

import pytest
import torch

from metronome_cli.backends.in_process import threads
from metronome_cli.backends.in_process.loading import load_model
from metronome_cli.measure.machine_load import MachineLoad
from metronome_cli.results.events import ObserverGroup
from tests.capacity.builders import small_profile


@pytest.fixture
def unloaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(threads, "WATCH_S", 0.0)


def load(busy, cores=2.0):
    return MachineLoad(cores, busy, 1.0, 2, "", None)


@pytest.mark.parametrize(
    ("busy", "spins"), [(0.0, True), (0.1, True), (0.5, False), (2.0, False), (None, False)]
)
def test_threads_spin_only_where_each_has_a_core_of_its_own(unloaded, monkeypatch, busy, spins):
    monkeypatch.setattr(threads.CpuLoadSampler, "read", lambda self, environ: load(busy))
    environ = {}
    threads.prepare(environ)
    assert environ == ({"GOMP_SPINCOUNT": threads.SPINS} if spins else {"OMP_WAIT_POLICY": "PASSIVE"})


@pytest.mark.parametrize("name", threads.SET_BY_USER)
def test_what_the_user_has_set_stays(unloaded, name):
    environ = {name: "x"}
    threads.prepare(environ)
    assert environ == {name: "x"}


def test_once_torch_is_loaded_the_environment_is_left_alone():
    environ = {}
    threads.prepare(environ)
    assert environ == {}


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("best", [1, 2, 4])
def test_the_fastest_number_of_threads_is_kept(four_threads, monkeypatch, best):
    monkeypatch.setattr(threads, "TRIAL_S", 0.0)

    def step():
        time.sleep(0.001 if torch.get_num_threads() == best else 0.03)

    trial = threads.fit(step, {})
    assert trial.chosen == best == torch.get_num_threads()
    assert sorted(trial.seconds) == [1, 2, 4]
    assert str(trial).startswith(f"{best} (1: ")


def test_a_number_that_the_user_has_set_is_not_tried(four_threads):
    assert threads.fit(lambda: pytest.fail("tried"), {"OMP_NUM_THREADS": "4"}) is None
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("blocks", [4, 400])
def test_loading_tells_what_was_tried_even_where_few_fit(four_threads, monkeypatch, blocks):
    for name in threads.COUNTED_BY_USER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "TRIAL_S", 0.01)
    told = []

    class Watcher(ObserverGroup):
        def event(self, kind, data):
            told.append((kind, data))

    profile = small_profile(
        policy="unbounded",
        blocks=blocks,
        adapter="speech-lm",
        adapter_options={"encoder_width": 8, "encoder_blocks": 1},
    )
    load_model(profile, device="cpu", seed=0, weights=None, observer=Watcher())
    assert [kind for kind, _ in told] == ["threads"]
    assert told[0][1]["chosen"] in told[0][1]["step_s"]
