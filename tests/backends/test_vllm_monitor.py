"""Sessions on an engine of resumable requests: what they send, what is counted, how they end."""

import itertools

import numpy as np
import pytest

from metronome_cli.backends.interface import RunSetup
from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.backends.streaming.run import StreamingRun
from metronome_cli.backends.vllm.host import VllmHost
from metronome_cli.backends.vllm.monitor import EngineMonitor, frame_blocks
from metronome_cli.backends.vllm.pool_gauge import PoolGauge
from metronome_cli.backends.vllm.simulated_vllm import SimulatedStreamingEngine
from metronome_cli.capacity.offered_load import OfferedLoad
from metronome_cli.core.clock import RealClock
from metronome_cli.core.errors import EngineError
from metronome_cli.load.workload import generated_workload
from metronome_cli.measure.recorder import Recorder
from metronome_cli.measure.stall import Still
from tests.capacity.builders import Noise, small_profile

PERIOD_S = 0.04
FRAME = {"period": "40ms", "sample_rate": 16000, "max_backlog": 5}
TOKENS = {"prefill": 5, "decode": {"listening": 3, "speaking": 3}}


class Bench:
    """An engine, its loop, and planned sessions in front of both."""

    def __init__(self, profile, stop=lambda: False, slots=64, **engine):
        self.loop = EventLoopThread("test")
        self.engine = SimulatedStreamingEngine(PoolGauge(frame_blocks(profile)), **engine)
        self.loop.wait(self.engine.start())
        frame, clock = profile.frame, RealClock()
        recorder = Recorder(frame.deadline_s * 1e3, [40.0], period_s=frame.period_s)
        workload = generated_workload(Noise(frame.samples, frame.period_s), profile.turn_taking, 0)
        setup = RunSetup(profile, workload, slots, "real", "continuous", 0, recorder.record, stop)
        host = VllmHost(self.engine, setup, clock, self.loop)
        run = StreamingRun(setup, [host], EngineMonitor(self.engine, clock, self.loop.close), clock)
        self.load = OfferedLoad(run, recorder, stop, Still())

    def live(self, sessions, seconds, age_s=0.0, lifetime_s=100.0):
        for _ in range(sessions):
            self.load.open(age_s, lifetime_s)
        self.load.begin()
        self.load.run_until(seconds)
        return self.load


@pytest.fixture
def bench():
    made = []

    def make(profile=None, **engine):
        made.append(Bench(profile or a_profile(), **({"blocks": 1000} | engine)))
        return made[-1]

    yield make
    for one in made:
        one.loop.close()


def a_profile(**changes):
    return small_profile(policy="unbounded", **({"frame": FRAME, "tokens": TOKENS} | changes))


def test_every_frame_is_answered_once(bench):
    driver = bench().live(4, seconds=0.8, lifetime_s=0.6)
    assert driver.recorder.ended == {"completed": 4}
    assert driver.recorder.total.frames == 4 * 15
    assert driver.recorder.total.empty == 0
    assert driver.recorder.total.latency.percentile(0.5) <= driver.recorder.total.latency.max_ms
    assert driver.run.stats().pool_full_s is None


def test_the_last_token_of_an_answer_is_fed_with_the_next_frame(bench):
    one = bench()
    one.live(1, seconds=0.5, lifetime_s=0.4)
    sent = one.engine.chunks["session-0"]
    assert [len(chunk.tokens) for chunk in sent] == [5] + [6] * 9
    assert {chunk.out for chunk in sent} == {3}
    positions = 0
    for before, after in itertools.pairwise(sent):
        positions += len(before.tokens) + before.out - 1
        assert after.tokens[0] == positions + 2  # the fake's third token of that answer


def test_growth_is_what_the_profile_says(bench):
    one, profile = bench(), a_profile()
    one.live(1, seconds=0.5, lifetime_s=0.4)
    cached = sum(len(chunk.tokens) + chunk.out - 1 for chunk in one.engine.chunks["session-0"])
    assert (
        cached == 10 * profile.mean_tokens_per_frame - 1
    )  # the last token waits for a frame that never comes


def test_a_silent_frame_asks_for_the_one_token_that_it_must_and_drops_it(bench):
    one = bench(a_profile(tokens={"prefill": 5, "decode": {"listening": 0, "speaking": 0}}))
    driver = one.live(1, seconds=0.5, lifetime_s=0.4)
    assert [(len(chunk.tokens), chunk.out) for chunk in one.engine.chunks["session-0"]] == [(5, 1)] * 10
    assert driver.recorder.total.frames == 10
    assert driver.recorder.total.empty == 0  # nothing was owed


def test_fractional_tokens_add_up(bench):
    one = bench(a_profile(tokens={"prefill": 1.5, "decode": {"listening": 0, "speaking": 0}}))
    one.live(1, seconds=0.5, lifetime_s=0.4)
    assert sum(len(chunk.tokens) for chunk in one.engine.chunks["session-0"]) == 15


def test_sessions_say_different_things(bench):
    one = bench()
    one.live(2, seconds=0.3, lifetime_s=0.2)
    first, second = (one.engine.chunks[f"session-{index}"] for index in (0, 1))
    assert [chunk.tokens for chunk in first] != [chunk.tokens for chunk in second]


def test_a_full_pool_is_silence_although_no_session_runs_or_waits(bench):
    """8 positions a frame and session, 64 blocks of 16: full after 64 frames of two sessions, 2.56 s."""
    one = bench(blocks=64)
    driver = one.live(2, seconds=5.0)
    assert driver.run.stats().pool_full_s == pytest.approx(
        64 * 16 / (2 * 8) * PERIOD_S, rel=0.3
    )  # on a busy machine
    pool = driver.run.stats().pool
    assert (pool.occupancy, pool.running, pool.waiting) == (1.0, 0, 0)
    assert driver.recorder.total.empty > 20
    assert driver.recorder.last_output_s < driver.run.stats().pool_full_s + 3 * PERIOD_S
    assert driver.recorder.ended["fell_behind"] == 0  # silence is not lateness
    trace = driver.run.stats().occupancy
    assert 0 <= trace.t_s[0] <= trace.t_s[-1] <= driver.run.stats().pool_full_s
    assert sorted(trace.occupancy) == list(trace.occupancy)
    assert trace.occupancy[-1] > 0.9


def test_a_window_on_the_same_pool_never_fills_it(bench):
    driver = bench(blocks=64, window=256).live(2, seconds=3.5)
    assert driver.run.stats().pool_full_s is None
    assert driver.recorder.total.empty == 0
    assert driver.run.stats().occupancy_max == pytest.approx(2 * 16 / 64)


def test_an_engine_that_is_too_slow_loses_the_beat(bench):
    driver = bench(step_s=0.06).live(2, seconds=2.0)
    assert driver.recorder.ended["fell_behind"] == 2
    assert driver.recorder.total.empty == 0
    assert driver.recorder.miss_streak_max > 3


def test_a_session_that_fills_the_context_is_named_and_ends_all_of_them(bench):
    driver = bench(context=100).live(3, seconds=2.0)
    assert driver.recorder.ended["context_limit"] >= 1
    assert driver.recorder.ended["context_limit"] + driver.recorder.ended["engine"] == 3
    assert driver.recorder.total.frames > 20


def test_an_engine_that_dies_raises_with_the_reason_after_counting_what_was(bench):
    one = bench()
    driver = one.live(2, seconds=0.4)
    counted = driver.recorder.total.frames
    one.engine.die("the worker was killed")
    with pytest.raises(EngineError, match="the worker was killed"):
        driver.run_until(3.0)
    assert driver.recorder.total.frames >= counted > 10


def test_a_session_can_be_given_a_past_and_a_new_one_has_none(bench):
    one = bench()
    driver = one.live(1, seconds=0.2, age_s=10.0)
    driver.open(age_s=10.0)
    driver.run_until(0.4)
    assert len(one.engine.chunks["session-0"][0].tokens) == a_profile().positions_at(10.0) == 2000
    assert len(one.engine.chunks["session-1"][0].tokens) == 5


def test_a_session_that_is_shed_frees_its_blocks(bench):
    one = bench(blocks=200)
    driver = one.live(4, seconds=0.3)
    driver.close_newest(3)
    driver.run_until(0.6)
    assert driver.recorder.ended["shed"] == 3
    assert len(driver) == 1
    assert list(one.engine._held) == ["session-0"]


def test_no_more_than_the_engine_has_slots_for(bench):
    load = bench(slots=2).live(2, seconds=0.1)
    assert not load.open()
    assert (load.rejected, load.recorder.rejected) == (1, {"slots": 1})


def test_a_stop_ends_the_wait_for_the_past():
    one = Bench(a_profile(), stop=lambda: True, blocks=1)  # no room for it
    one.load.open(10.0)
    one.load.begin()  # comes back
    assert one.load.preparing == 1
    one.load.close()


def test_a_bug_in_a_session_is_a_failure_of_the_generator_and_named(bench):
    one = bench()
    one.load.run._setup.workload.audio.stream = lambda index: Broken()
    load = one.live(1, seconds=2.0)
    assert load.recorder.ended == {"generator_error": 1}
    assert load.recorder.details["generator_error"] == "KeyError: 'frame 3'"
    assert load.recorder.lost == 1


class Broken:
    """Audio that fails in its fourth frame."""

    def frame(self, k):
        if k == 3:
            raise KeyError("frame 3")
        return np.zeros(640, dtype=np.float32)
