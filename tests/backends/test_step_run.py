"""A run in process keeps the planned times, whatever the engine does, on the virtual clock."""

import pytest

from metronome_cli.backends.in_process.backend import InProcessBackend
from metronome_cli.backends.in_process.run import StepRun
from metronome_cli.backends.interface import RunSetup
from metronome_cli.backends.simulated_engine import SimulatedEngine
from metronome_cli.core.clock import VirtualClock
from metronome_cli.core.session import FrameBatch, SessionSpec
from metronome_cli.core.stop import StopRequest
from metronome_cli.load.arrivals import at_once, ramp, spread_ages
from tests.capacity.builders import always, context_on, load_on, small_profile


def run(step_s, sessions, seconds, **kwargs):
    load = load_on(step_s, sessions=at_once([0.0] * sessions), **kwargs)
    load.run_until(seconds)
    return load


def test_every_due_frame_is_answered_once():
    driver = run(always(0.004), 5, 8.0)
    total = driver.recorder.total
    assert total.frames == pytest.approx(5 * 8.0 / 0.08, abs=10)
    assert total.misses == 0
    assert total.empty == 0


def test_latency_counts_from_the_planned_due_time_not_from_the_start_of_the_step():
    driver = run(
        lambda n: 0.1, 1, 8.0
    )  # each step takes longer than the period: the queue grows without bound
    assert driver.recorder.total.latency.percentile(0.5) > 200
    assert driver.recorder.total.misses == driver.recorder.total.frames


def test_a_session_whose_backlog_passes_the_limit_has_lost_the_beat():
    profile = small_profile(backlog_limit=5)
    driver = run(lambda n: 0.3, 1, 20.0, profile=profile)
    assert driver.recorder.ended["fell_behind"] == 1
    assert len(driver) == 0


def test_continuous_batches_what_is_due_and_tick_batches_a_whole_period():
    continuous = run(always(0.004), 16, 8.0)
    tick = run(always(0.004), 16, 8.0, batching="periodic")
    assert tick.recorder.total.batches < continuous.recorder.total.batches
    assert tick.recorder.total.batches == pytest.approx(8.0 / 0.08, abs=3)


def test_a_batch_never_exceeds_the_maximum_and_takes_the_earliest_deadlines():
    sizes = []
    load = load_on(lambda n: sizes.append(n) or 0.05, small_profile(max_batch=3), at_once([0.0] * 12))
    load.run_until(4.0)
    assert max(sizes) == 3


def test_lateness_of_the_generator_is_nil_on_the_virtual_clock():
    assert run(always(0.01), 8, 8.0).recorder.lateness.max_ms == 0.0


def test_a_full_pool_is_on_time_and_silent():
    driver = run(always(0.004), 8, 60.0, profile=small_profile(policy="unbounded", blocks=100))
    total = driver.recorder.total
    assert total.misses == 0
    assert total.empty > 0
    assert driver.run.stats().pool_full_s is not None
    assert driver.recorder.last_output_s < 60.0 - 10
    assert driver.run.stats().pool.occupancy > 0.95


def test_arrivals_keep_their_plan():
    assert [a.start_s for a in ramp(3, 2.0)] == [0.0, 0.5, 1.0]
    assert spread_ages(4, 80.0) == [10.0, 30.0, 50.0, 70.0]


def test_sessions_finish_at_their_lifetime_and_make_room():
    load = load_on(always(0.002), sessions=ramp(120, 2.0, lifetime_s=5.0))
    load.run_until(60.0)
    ended = load.recorder.ended
    assert load.offered == 120 == ended["completed"] + len(load) + load.shed + load.rejected
    assert ended["completed"] > 50


def test_admission_rejects_cleanly():
    load = load_on(always(0.002), sessions=at_once([0.0] * 10), admission=lambda session: session.index < 4)
    load.run_until(1.0)
    assert (load.offered, load.shed, len(load)) == (10, 6, 4)


def test_each_session_says_its_own_audio_in_its_own_phase():
    seen = {}

    class Listening(SimulatedEngine):
        def step(self, frames):
            for frame in frames:
                seen.setdefault(frame.slot, frame.audio.tobytes())
            return super().step(frames)

    profile = small_profile()
    context = context_on(
        always(0.002),
        backend=InProcessBackend(lambda p, slots: Listening(p, slots, always(0.0001)), profile),
    )
    with context.open_load(6, arrivals=at_once([0.0] * 6)) as load:
        load.begin()
        load.run_until(0.2)
        due = [round(point.t_s, 4) for point in load.recorder.batches]
    assert len(set(seen.values())) == 6 + 1  # and the silence of the warm-up
    assert len(set(due)) == len(due) > 6


def test_counts_that_are_reset_start_from_nothing():
    load = run(always(0.004), 2, 1.0)
    load.recorder.reset()
    load.run_until(2.0)
    assert 0 < load.recorder.total.frames < 40


def test_closing_the_newest_keeps_the_oldest():
    load = run(always(0.004), 5, 1.0)
    load.close_newest(2)
    assert list(load.recorder.active) == [0, 1, 2]
    assert load.recorder.ended["shed"] == 2


def test_a_batch_that_begins_late_delays_those_behind_it_until_there_is_idle_time():
    """Lateness is inherited by what queues behind it, and worked off in idle time: that of Lindley's recursion."""
    late_s = {20: 0.5}

    class Napping(VirtualClock):
        def wait_until(self, instant_s, stopped):
            super().wait_until(instant_s, stopped)
            self.spent(late_s.pop(len(batches), 0.0))

    batches = []
    setup = RunSetup(
        small_profile(), context_on(always(0.0)).workload, 4, "virtual", "continuous", 0,
        lambda event: batches.append(event) if isinstance(event, FrameBatch) else None, StopRequest(),
    )  # fmt: skip
    step = StepRun(SimulatedEngine(setup.profile, 4, always(0.02)), setup)
    step.clock = Napping()
    step.open(SessionSpec(0.0))
    step.begin()
    step.run_until(4.0)
    delays = [batch.delay_s for batch in batches]
    assert max(delays[:20]) == 0.0
    assert delays[20] == pytest.approx(0.5)
    assert 0 < delays[24] < delays[20]
    assert delays[-1] == 0.0
    on_time_ms = [frame.latency_ms for frame in batches[0].frames]
    for batch in batches:
        assert batch.frames[0].latency_ms - 1e3 * batch.delay_s == pytest.approx(on_time_ms[0], abs=1e-6)
