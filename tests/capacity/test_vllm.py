"""`capacity` on an engine that batches by itself: the usual points, searches and reports, one engine for each point."""

import asyncio
import re

import pytest

from metronome_cli.backends.vllm.backend import VllmSetup
from metronome_cli.backends.vllm.simulated_vllm import SimulatedStreamingEngine
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.commands.capacity_on_vllm import run_on_streaming_engine, run_on_vllm
from metronome_cli.commands.plan_capacity import capacity_plan, vllm_setup
from metronome_cli.config.settings import resolve
from metronome_cli.core.errors import EngineError, UsageError
from metronome_cli.core.stop import StopRequest
from tests.capacity.builders import ObserverLog, small_profile

FRAME = {"period": "20ms", "sample_rate": 16000, "deadline": "60ms", "max_backlog": 1000}


def measure(profile, engine=None, **plan):
    engines = []

    def make(arguments, gauge):
        fake = SimulatedStreamingEngine(
            gauge, blocks=arguments["num_gpu_blocks_override"] - 1, **(engine or {})
        )
        engines.append(fake)
        return fake

    observer = ObserverLog()
    plan = CapacityPlan(profile, **({"session_length_s": 1.5, "sessions": 2} | plan))
    report = run_on_streaming_engine(plan, VllmSetup("dir"), make, observer)
    return report, engines, observer


def a_profile(**changes):
    return small_profile(policy="unbounded", **({"frame": FRAME, "objectives": ["p99<60ms"]} | changes))


def test_a_point_lives_through_the_session_and_the_engine_is_stopped():
    report, engines, observer = measure(a_profile())
    point = report.capacity.trials[0]
    assert (report.status, report.clock, point.sessions_ended_early) == ("complete", "real", {})
    assert point.frames > 50
    assert [engine.stopped for engine in engines] == [True]
    assert report.backend["engine"] == "fake"
    assert report.backend["arguments"]["num_gpu_blocks_override"] == 2001
    assert [kind for kind, _ in observer.events].count("trial") == 1


def test_every_point_has_an_engine_of_its_own():
    report, engines, _ = measure(
        a_profile(), sessions=None, method="bisect", max_sessions=1, session_length_s=1.0
    )
    assert len(engines) == len(report.capacity.trials) >= 2
    assert all(engine.stopped for engine in engines)


def test_an_engine_that_dies_ends_the_run_with_the_reason_and_the_report():
    report, engines, observer = measure(a_profile(), engine={"chunks_of_life": 60}, session_length_s=3.0)
    assert report.status == "failed"
    assert report.error == "the worker was killed"
    assert [point.ended_by for point in report.capacity.trials] == ["backend_error"]
    assert report.capacity.trials[0].frames > 10
    assert engines[0].stopped
    assert any("the worker was killed" in notice for notice in observer.notices)


def test_a_filled_context_is_named_for_what_it_is():
    report, _, _ = measure(a_profile(), engine={"context": 150}, session_length_s=3.0)
    point = report.capacity.trials[0]
    assert (point.ended_by, point.limited_by, report.status) == (
        "context_limit",
        "context_length",
        "complete",
    )
    assert re.search(r"context limit, the first one at \d", point.reason)
    assert report.verdict == "fail"


def test_what_occupancy_forecasts_is_in_the_report():
    """16 positions a frame of two sessions, 50 frames a second, blocks of 16: 50 blocks a second of 400."""
    tokens = {"prefill": 5, "decode": {"listening": 3, "speaking": 3}}
    report, _, _ = measure(a_profile(blocks=400, tokens=tokens), session_length_s=3.0)
    assert report.forecast.source == "trace"
    assert report.forecast.fill_time_s.estimate == pytest.approx(8.0, rel=0.1)
    assert report.forecast.observed_fill_time_s is None
    assert "vLLM's KV pool with 2 sessions will be full at" in report.summary


def test_a_policy_that_vllm_lacks_is_refused_before_anything_runs():
    with pytest.raises(UsageError, match="without sinks"):
        measure(small_profile())
    with pytest.raises(UsageError, match="one position"):
        measure(a_profile(tokens={"prefill": 1, "decode": {"listening": 1, "speaking": 1}, "fused": True}))


def test_a_window_that_the_model_ignores_is_refused():
    with pytest.raises(UsageError, match="ignores this model's sliding_window"):
        measure(small_profile(policy="window(64)", frame=FRAME))


def settings(**flags):
    return resolve({"profile": "smoke", "backend": "vllm", **flags}, environ={})


def test_what_vllm_decides_cannot_be_asked_for(tmp_path):
    for flags in ({"device": "cpu"}, {"batching": "periodic"}, {"clock": "virtual"}, {"url": "ws://x"}):
        with pytest.raises(UsageError):
            vllm_setup(settings(weights=str(tmp_path), **flags))
    with pytest.raises(UsageError, match="model's directory"):
        vllm_setup(settings())
    plan = vllm_setup(
        settings(weights=str(tmp_path), vllm_arg=["tensor_parallel_size=2", "load_format=dummy"])
    )
    assert plan.given == {"tensor_parallel_size": 2, "load_format": "dummy"}
    assert plan.weights == "random"


def test_engine_arguments_need_vllm():
    with pytest.raises(UsageError, match="--backend vllm"):
        capacity_plan(resolve({"profile": "smoke", "vllm_arg": ["a=1"]}, environ={}))
    with pytest.raises(UsageError, match="key=value"):
        resolve({"vllm_arg": ["tensor_parallel_size"]}, environ={})


def test_without_vllm_it_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="not installed"):
        run_on_vllm(CapacityPlan(a_profile()), VllmSetup("dir"))


class SlowStart(SimulatedStreamingEngine):
    """An engine whose model takes for ever to load."""

    def __init__(self, gauge, stop):
        super().__init__(gauge, blocks=100)
        self._stop = stop

    async def start(self):
        self._stop.request(15)
        while self._death is None:
            await asyncio.sleep(0.01)
        raise EngineError(self._death)


def test_a_stop_does_not_wait_for_a_model_to_load():
    stop = StopRequest()
    plan = CapacityPlan(a_profile(), session_length_s=1.0, sessions=2)
    report = run_on_streaming_engine(
        plan, VllmSetup("dir"), lambda _, gauge: SlowStart(gauge, stop), ObserverLog(), stop
    )
    assert (report.status, report.error) == ("interrupted", None)
