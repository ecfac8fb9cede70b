"""vLLM's own API server and its realtime endpoint, on loopback, with a small recogniser of random weights.

An answer for every five seconds of speech, 66 positions in and up to 64 out, in a pool of 1,664: two sessions fit,
six do not. Runs where `.ci/peers.sh vllm` has made the peer's environment; the server takes a minute to start.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from metronome_cli.backends.websocket.backend import WebsocketSetup
from metronome_cli.backends.websocket.detect import served_model
from metronome_cli.backends.websocket.endpoint import SessionTimeouts, detect, endpoint
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.commands.capacity_on_server import run_on_server
from metronome_cli.config.profile import Profile
from metronome_cli.measure.objective import Objective
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.run_report import Report

ROOT = Path(__file__).parent.parent.parent
PYTHON = ROOT / ".peers" / "vllm" / "bin" / "python"
pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="no environment of the peer: .ci/peers.sh vllm"),
    pytest.mark.slow,
]

START_S = 240.0
BLOCKS = 13  # of 128 positions
PROFILE = {
    "name": "recogniser",
    "title": "a small speech recogniser, an answer for every five seconds",
    "adapter": "decoder",
    "frame": {"period": "5s", "sample_rate": 16000},
    "tokens": {"prefill": 66, "decode": {"listening": 64, "speaking": 64}},
    "shape": {
        "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 32, "hidden_size": 64, "intermediate_size": 128,
        "vocab_size": 512,
        "dtype": "float32", "context_length": 1024,
    },
    "kv_pool": {"blocks": BLOCKS, "block_size": 128},
    "policy": "unbounded",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address, host and port."""
    folder = tmp_path_factory.mktemp("recogniser")
    side = Path(__file__).parent / "vllm_realtime_side.py"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    env.pop("PYTHONPATH", None)
    subprocess.run([PYTHON, "-W", "ignore", side, folder], env=env, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env |= {
        "PYTHONPATH": str(folder / "names"), "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }  # fmt: skip
    command = [
        PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--served-model-name", "recogniser",
        "--load-format", "dummy", "--dtype", "float32", "--max-model-len", "1024", "--host", "127.0.0.1",
        "--port", str(port), "--enforce-eager", "--no-enable-prefix-caching", "--num-gpu-blocks-override", str(BLOCKS),
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log)
        try:
            wait_for(process, f"http://127.0.0.1:{port}/health", folder / "log")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def wait_for(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(1.0)
        else:
            return
    pytest.fail(f"the server did not start: {log.read_text()[-3000:]}")


def measure(
    server: str, sessions: int, length_s: float, limits: SessionTimeouts
) -> tuple[Report, TrialResult]:
    plan = CapacityPlan(
        profile=Profile.model_validate(PROFILE),
        objectives=(Objective.parse("p90<5s"), Objective.parse("empty<10%")),
        session_length_s=length_s,
        sessions=sessions,
    )
    remote = WebsocketSetup(
        f"ws://{server}", "vllm-realtime", f"http://{server}/metrics", limits=limits, environ={}
    )
    report = run_on_server(plan, remote)
    assert report.capacity is not None
    (point,) = report.capacity.trials
    return report, point


def test_protocol_and_model_are_found_out(server: str) -> None:
    assert asyncio.run(detect(f"ws://{server}", SessionTimeouts(), {})) == "vllm-realtime"
    assert served_model(endpoint(f"ws://{server}", "vllm-realtime", environ={})) == "recogniser"


def test_sessions_that_fit_are_answered_segment_by_segment(server: str) -> None:
    report, point = measure(server, 2, 22.0, SessionTimeouts(idle_s=30.0))
    assert point.sessions_ended_early == {}
    assert point.frames >= 2
    assert point.empty_frames == 0
    assert point.latency_ms.p50 is not None
    assert report.backend["protocol"] == "vllm-realtime"
    assert point.occupancy_max is not None
    assert 0 < point.occupancy_max < 0.95
    assert point.pool_full_at_s is None


def test_sessions_that_do_not_fit_are_lost_to_memory_and_its_metrics_say_so(server: str) -> None:
    """Whether they are left waiting, or one grows past the context and takes the engine with it."""
    report, point = measure(server, 6, 45.0, SessionTimeouts(idle_s=20.0))
    assert (point.verdict, point.limited_by) == ("fail", "memory")
    assert point.pool_full_at_s is not None
    assert point.occupancy_max is not None
    assert point.occupancy_max > 0.9
    assert point.sessions_ended_early
    assert "Limited by: memory" in report.summary
