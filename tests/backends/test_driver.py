"""The driver keeps the planned beat, whatever the engine does, on the virtual clock."""

import math

import numpy as np
import pytest

from metronome_cli.capacity.feeder import Feeder
from metronome_cli.load.arrivals import at_once, poisson, ramp, spread_ages
from metronome_cli.measure.ledger import Ledger
from tests.capacity.builders import always, driver_on, small_profile


def run(step_s, sessions, seconds, **kwargs):
    driver = driver_on(step_s, **kwargs)
    Feeder(driver, at_once([0.0] * sessions)).run_until(seconds)
    return driver


def test_every_due_frame_is_answered_once():
    driver = run(always(0.004), 5, 8.0)
    total = driver.ledger.total
    assert total.frames == pytest.approx(5 * 8.0 / 0.08, abs=10)
    assert total.misses == 0
    assert total.empty_frames == 0


def test_latency_counts_from_the_planned_due_time_not_from_the_start_of_the_step():
    driver = run(
        lambda n: 0.1, 1, 8.0
    )  # each step takes longer than the period: the queue grows without bound
    assert driver.ledger.total.latency.percentile(0.5) > 200
    assert driver.ledger.total.misses == driver.ledger.total.frames


def test_a_session_whose_backlog_passes_the_limit_has_lost_the_beat():
    profile = small_profile(backlog_limit=5)
    driver = run(lambda n: 0.3, 1, 20.0, profile=profile)
    assert driver.lost_beat == 1
    assert len(driver.population) == 0


def test_continuous_batches_what_is_due_and_tick_batches_a_whole_period():
    continuous = run(always(0.004), 16, 8.0)
    tick = run(always(0.004), 16, 8.0, batching="tick")
    assert tick.ledger.total.steps < continuous.ledger.total.steps
    assert tick.ledger.total.steps == pytest.approx(8.0 / 0.08, abs=3)


def test_a_batch_never_exceeds_the_maximum_and_takes_the_earliest_deadlines():
    sizes = []
    driver = driver_on(lambda n: sizes.append(n) or 0.05, profile=small_profile(max_batch=3))
    Feeder(driver, at_once([0.0] * 12)).run_until(4.0)
    assert max(sizes) == 3


def test_lateness_of_the_generator_is_nil_on_the_virtual_clock():
    assert run(always(0.01), 8, 8.0).ledger.lateness.max_ms == 0.0


def test_a_full_pool_is_on_time_and_silent():
    driver = run(always(0.004), 8, 60.0, profile=small_profile(policy="unbounded", blocks=100))
    total = driver.ledger.total
    assert total.misses == 0
    assert total.empty_frames > 0
    assert driver.pool_full_s is not None
    assert driver.ledger.last_output_s < 60.0 - 10
    assert driver.population.target.pool().occupancy > 0.95


def test_arrivals_keep_their_plan():
    assert [a.at_s for a in ramp(3, 2.0)] == [0.0, 0.5, 1.0]
    assert spread_ages(4, 80.0) == [10.0, 30.0, 50.0, 70.0]
    times = [a.at_s for a in poisson(5.0, seed=1, until_s=200.0)]
    assert times == [a.at_s for a in poisson(5.0, seed=1, until_s=200.0)]
    assert len(times) == pytest.approx(1000, abs=4 * math.sqrt(1000))


def test_sessions_finish_at_their_lifetime_and_make_room():
    driver = driver_on(always(0.002))
    feeder = Feeder(driver, poisson(2.0, seed=3, until_s=60.0, mean_lifetime_s=5.0))
    feeder.run_until(60.0)
    finished = driver.population.ended["completed"]
    assert feeder.offered == finished + len(driver.population) + feeder.rejected + feeder.refused
    assert finished > 50


def test_admission_rejects_cleanly():
    driver = driver_on(always(0.002))
    feeder = Feeder(driver, at_once([0.0] * 10), admits=lambda arrival: len(driver.population) < 4)
    feeder.run_until(1.0)
    assert (feeder.offered, feeder.rejected, len(driver.population)) == (10, 6, 4)


def test_each_session_speaks_its_own_audio_in_its_own_phase():
    driver = driver_on(always(0.002))
    Feeder(driver, at_once([0.0] * 6)).run_until(0.01)
    sessions = driver.population.sessions()
    phases = {round(s.start_s, 6) for s in sessions}
    frames = {s.stream.frame(0).tobytes() for s in sessions}
    assert len(phases) == 6
    assert len(frames) == 6
    assert all(np.isfinite(s.stream.frame(3)).all() for s in sessions)


def test_a_ledger_swapped_in_starts_from_nothing():
    driver = run(always(0.004), 2, 1.0)
    driver.ledger = Ledger(80.0)
    driver.run_until(2.0)
    assert 0 < driver.ledger.total.frames < 40
