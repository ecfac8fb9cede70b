"""Replayed step times give the late share of other numbers of sessions, which a long simulation knows."""

import numpy as np
import pytest

from metronome_cli.capacity.disturbance import disturbed
from metronome_cli.capacity.queue_model import QueueModel, Stepping, StepTimes
from metronome_cli.capacity.samples import Samples
from tests.capacity.simulated_machine import MACHINES, Machine, SimulatedMachine, late_share


def samples(machine, numbers, seed=0, length_s=8.0):
    simulated, trials = SimulatedMachine(machine, seed), []
    for sessions in numbers:
        began_s = simulated.now_s
        trial = simulated.trial(sessions, 0.0, length_s, settle=False)
        trials.append(Samples.of(sessions, trial.batches, began_s))
    return trials


def test_step_times_are_those_of_the_machine():
    times = StepTimes(samples(MACHINES["quiet"], [20, 64]))
    sizes = np.array([2.0, 10.0, 20.0])
    assert times.at(sizes) == pytest.approx(12.0 + 0.75 * sizes, rel=0.06)


@pytest.mark.parametrize("sessions", [50, 60, 76])
def test_shares_are_those_of_a_long_simulation(sessions):
    machine, rng = MACHINES["quiet"], np.random.default_rng(0)
    trials = samples(machine, [20, 40, 66, 74])
    model = QueueModel(trials, np.ones((16, len(trials))), Stepping(80.0, 256), 187, rng)
    (shares,) = model.shares([80.0], 0.01, np.array([sessions]))
    truth = late_share(machine, sessions, trials=12)
    assert (shares.mean() > 0.01) == (truth > 0.01)


def test_shares_grow_with_the_number_of_sessions():
    trials, rng = samples(MACHINES["heavy tail"], [20, 50]), np.random.default_rng(0)
    model = QueueModel(trials, np.ones((8, 2)), Stepping(80.0, 256), 187, rng)
    (shares,) = model.shares([80.0], 0.01, np.arange(1, 188))
    assert (np.diff(shares, axis=1) >= -1e-12).all()


@pytest.mark.parametrize(("burst", "seen"), [(None, False), ((5.0, 15.0, 3.0), True)])
def test_bursts_are_disturbances_and_noise_is_none(burst, seen):
    trials = samples(Machine(burst=burst), [10, 20, 30, 10])
    marks = disturbed(trials, 80.0, steps=True)
    assert any(mark.any() for mark in marks) == seen
