"""What vLLM's engine is made with, what its scheduler's words mean, and why it died."""

import asyncio
import json
import logging

import pytest

from metronome_cli.backends.vllm import need_vllm
from metronome_cli.backends.vllm.arguments import (
    check_known,
    engine_arguments,
    fitted,
    make_room,
    read_arguments,
    window_overrides,
)
from metronome_cli.backends.vllm.engine import prepare
from metronome_cli.backends.vllm.log import EngineLog
from metronome_cli.backends.vllm.monitor import blocks_at, frame_blocks
from metronome_cli.backends.vllm.pool_gauge import PoolGauge
from metronome_cli.backends.vllm.simulated_vllm import SimulatedStreamingEngine
from metronome_cli.backends.vllm.warm_up import check_window, warm
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.errors import UsageError
from tests.capacity.builders import small_profile


def unbounded(**changes):
    return small_profile(policy="unbounded", **changes)


# -- arguments -------------------------------------------------------------------------------------------------


def test_values_mean_what_they_look_like():
    texts = [
        "tensor-parallel-size=2",
        "enforce_eager=true",
        "dtype=float32",
        'override={"a": [1, 2]}',
        "x=a=b",
        "day=2024-99-99",
    ]
    assert read_arguments(texts) == {
        "tensor_parallel_size": 2,
        "enforce_eager": True,
        "dtype": "float32",
        "override": {"a": [1, 2]},
        "x": "a=b",
        "day": "2024-99-99",
    }


def test_the_model_is_named_elsewhere():
    with pytest.raises(UsageError, match="metronome sets model"):
        read_arguments(["model=x"])


def test_an_unknown_argument_is_refused_with_the_nearest():
    with pytest.raises(UsageError) as caught:
        check_known({"tensor_paralel_size": 2}, {"tensor_parallel_size", "dtype"})
    assert "tensor_parallel_size" in caught.value.hint


def test_the_pool_is_the_profiles_and_one_block_more_that_vllm_keeps_for_itself():
    made = engine_arguments(unbounded(blocks=300), "dir", slots=7, seed=3, given={})
    assert (made["num_gpu_blocks_override"], made["block_size"], made["max_num_seqs"]) == (301, 16, 7)
    assert made["enable_prefix_caching"] is False
    assert "hf_overrides" not in made


def test_a_growing_session_is_no_longer_than_the_pool_since_vllm_would_not_start():
    assert engine_arguments(unbounded(blocks=300), "dir", 1, 0, {})["max_model_len"] == 300 * 16
    assert engine_arguments(unbounded(blocks=9000), "dir", 1, 0, {})["max_model_len"] == 65536
    assert (
        engine_arguments(small_profile(policy="window(64)", blocks=30), "d", 1, 0, {})["max_model_len"]
        == 65536
    )


def test_what_is_given_stands_above_and_changes_the_reckoning():
    profile = fitted(unbounded(blocks=300), {"block_size": 32, "max_model_len": 500})
    made = engine_arguments(profile, "dir", 1, 0, {"block_size": 32, "max_model_len": 500, "seed": 9})
    assert (made["max_model_len"], made["block_size"], made["seed"]) == (500, 32, 9)
    assert profile.shape.context_length == 500
    assert fitted(unbounded(), {"gpu_memory_utilization": 0.5}).kv_pool is None


def test_blocks_are_as_the_device_wants_them_and_the_pool_keeps_its_positions():
    pool = fitted(unbounded(blocks=300), {}, block_multiple=32).kv_pool
    assert (pool.block_size, pool.blocks) == (32, 150)
    assert fitted(unbounded(blocks=300), {"block_size": 64}, block_multiple=32).kv_pool.blocks == 75
    assert fitted(unbounded(blocks=300), {}).kv_pool.blocks == 300


def test_a_window_is_told_to_the_model_beside_what_the_user_overrides():
    made = engine_arguments(
        small_profile(policy="window(64)"), "dir", 1, 0, {"hf_overrides": {"rope_theta": 1.0}}
    )
    assert made["hf_overrides"]["sliding_window"] == 64
    assert made["hf_overrides"]["layer_types"] == ["sliding_attention"]
    assert made["hf_overrides"]["rope_theta"] == 1.0


@pytest.mark.parametrize("policy", ["window(64, 16)", "ring(64)", "recycle(64)"])
def test_what_vllm_cannot_keep_is_said(policy):
    with pytest.raises(UsageError, match="without sinks") as caught:
        window_overrides(CachePolicySpec.parse(policy), 2)
    assert "window(64)" in caught.value.hint


def test_a_processor_is_allowed_as_much_cache_as_the_pool_takes():
    environ = {}
    profile = unbounded(blocks=1 << 20)  # 64 bytes a position: 1 GiB of blocks and one more
    make_room(engine_arguments(profile, "dir", 1, 0, {}), profile, environ)
    assert environ == {"VLLM_CPU_KVCACHE_SPACE": "2"}
    make_room(engine_arguments(profile, "dir", 1, 0, {}), unbounded(blocks=1 << 22), environ)
    assert environ == {"VLLM_CPU_KVCACHE_SPACE": "2"}  # who set it keeps it


def test_without_vllm_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        need_vllm()
    assert "metronome-cli[vllm]" in caught.value.hint


# -- the pool --------------------------------------------------------------------------------------------------


def test_nearly_full_is_when_a_frame_may_not_fit():
    now = [0.0]
    gauge = PoolGauge(frame_blocks=2, clock=lambda: now[0])
    gauge.begin(100)
    for at, occupancy in enumerate([0.5, 0.98, 0.97, 0.99, 1.0]):
        now[0] = float(at)
        gauge.take(0, occupancy, 1, 2)
        assert gauge.nearly_full_since == {0.5: None, 0.98: None, 0.97: None, 0.99: 3.0, 1.0: 3.0}[occupancy]
    assert gauge.occupancy_max == 1.0
    gauge.take(0, 0.2, 0, 0)
    assert gauge.nearly_full_since is None


def test_several_engines_add_up_and_the_fullest_counts():
    gauge = PoolGauge()
    gauge.begin(200, engines=2)
    gauge.take(0, 1.0, 3, 1)
    gauge.take(1, 0.5, 2, 0)
    pool = gauge.pool()
    assert (pool.used_blocks, pool.total_blocks, pool.running, pool.waiting) == (150, 200, 5, 1)
    assert gauge.occupancy_max == 1.0
    assert gauge.nearly_full_since is not None


def test_blocks_of_a_session():
    growing, windowed = unbounded(), small_profile(policy="window(64)")
    assert blocks_at(growing, 600.0) == -(-growing.positions_at(600.0) // 16)
    assert blocks_at(windowed, 600.0) == blocks_at(windowed, 6000.0) <= 6
    assert frame_blocks(growing) == 1


# -- the window ------------------------------------------------------------------------------------------------


def seen(policy, window, blocks=2000):
    profile = small_profile(policy=policy, blocks=blocks)
    engine = SimulatedStreamingEngine(PoolGauge(frame_blocks(profile)), blocks=blocks, window=window)

    async def run():
        await engine.start()
        return await warm(engine, profile)

    return profile, asyncio.run(run())


def test_a_window_that_is_kept_is_stated():
    assert check_window(*seen("window(64)", window=64)).startswith("kept: 4 blocks")


def test_a_model_that_ignores_it_is_refused():
    with pytest.raises(UsageError, match="ignores this model's sliding_window"):
        check_window(*seen("window(64)", window=None))


def test_a_window_that_has_no_room_to_be_shown_is_not_claimed():
    assert check_window(*seen("window(64)", window=64, blocks=9)).startswith("not checked")
    assert check_window(*seen("unbounded", window=None)) is None


# -- the log ---------------------------------------------------------------------------------------------------


@pytest.fixture
def log():
    one = EngineLog()
    yield one
    one.close()


def write(log, text):
    with log.file.open("a") as file:
        file.write(text + "\n")


def test_the_first_exception_is_the_reason(log):
    write(log, "vllm.OldError: of another engine")
    log.mark()
    write(log, "INFO all is well\nTraceback (most recent call last):\n  File x\nValueError: no room in here")
    write(log, "RuntimeError: Worker failed")
    assert log.reason(RuntimeError("see above")) == "no room in here"


def test_a_death_comes_before_what_follows_from_it(log):
    write(log, "Worker proc VllmWorker-0 died unexpectedly (exit code: -9).\nRuntimeError: cancelled")
    assert (
        log.reason(RuntimeError("see above")) == "Worker proc VllmWorker-0 died unexpectedly (exit code: -9)."
    )


def test_an_empty_log_leaves_the_errors_own_words(log):
    assert log.reason(RuntimeError("x" * 1000)) == "x" * 297 + "..."
    assert log.reason(RuntimeError()) == "RuntimeError"


@pytest.fixture
def logger():
    """vLLM's, whatever was done to it taken back."""
    yield logging.getLogger("vllm.engine")
    root = logging.getLogger("vllm")
    for handler in list(root.handlers):
        handler.close()
        root.removeHandler(handler)


def test_vllms_words_go_to_the_file_of_the_run(log, logger):
    assert json.loads(log.configuration.read_text())["loggers"]["vllm"]["propagate"] is False
    environ = {}
    prepare(log, environ)
    logger.error("heard")
    assert log.file.read_text() == "heard\n"
    following = EngineLog()
    prepare(following, environ)
    logger.error("heard again")
    assert following.file.read_text() == "heard again\n"
    assert environ["VLLM_LOGGING_CONFIG_PATH"] == str(following.configuration)
    following.close()


def test_who_has_said_where_the_log_goes_is_obeyed(log, logger):
    environ = {"VLLM_LOGGING_CONFIG_PATH": "/my/logging.json"}
    prepare(log, environ)
    assert environ["VLLM_LOGGING_CONFIG_PATH"] == "/my/logging.json"


def test_a_log_that_is_kept_stays(tmp_path):
    one = EngineLog()
    one.close(keep=True)
    assert one.file.exists()
    one.close()
    assert not one.file.exists()
