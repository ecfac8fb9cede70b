"""PyPI `moshi`'s own server, on loopback, with small random weights, driven as users drive theirs.

It takes one session; a further client has an open socket and no handshake. Runs where `.ci/peers.sh moshi` has
made the peer's environment.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metronome_cli.backends.websocket.backend import WebsocketSetup
from metronome_cli.backends.websocket.endpoint import SessionTimeouts, detect
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.commands.capacity_on_server import run_on_server
from metronome_cli.config.profile_files import load_profile
from metronome_cli.measure.objective import Objective
from metronome_cli.results.run_report import Report

ROOT = Path(__file__).parent.parent.parent
PYTHON = ROOT / ".peers" / "moshi" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no environment of the peer: .ci/peers.sh moshi")

START_S = 60.0
QUICK = SessionTimeouts(ready_s=2.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    quiet = {**os.environ, "NO_TORCH_COMPILE": "1", "NO_CUDA_GRAPH": "1", "HF_HUB_OFFLINE": "1"}
    quiet.pop("PYTHONPATH", None)
    script = Path(__file__).parent / "moshi_server_side.py"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([PYTHON, script, folder, str(port)], env=quiet, stdout=log, stderr=log)
        try:
            wait_for(process, port, folder / "log")
            yield f"ws://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"the server did not start: {log.read_text()[-3000:]}")


def measure(server: str, sessions: int | None, length_s: float) -> Report:
    plan = CapacityPlan(
        profile=load_profile("default"),
        objectives=(Objective.parse("p90<80ms"), Objective.parse("empty<10%")),
        session_length_s=length_s,
        sessions=sessions,
    )
    return run_on_server(plan, WebsocketSetup(server, "moshi", limits=QUICK, environ={}))


def test_its_protocol_is_found_out(server: str) -> None:
    assert asyncio.run(detect(server, QUICK, {})) == "moshi"


def test_a_session_is_answered_frame_by_frame(server: str) -> None:
    report = measure(server, 1, 8.0)
    assert report.capacity is not None
    (point,) = report.capacity.trials
    assert point.network is not None
    assert point.network.sessions_started == 1
    assert point.network.session_setup_ms.max is not None
    if point.sessions_ended_early:  # a server that gets no processor falls behind, and that is told too
        assert (point.sessions_ended_early, point.limited_by) == ({"fell_behind": 1}, "deadline")
        return
    assert point.frames > 50
    assert point.empty_frames == 0
    assert point.latency_ms.p50 is not None
    assert (
        point.network.output_s_per_input_s is not None
    )  # short of 1 by the first frames, and what is under way at the end
    assert 0.7 < point.network.output_s_per_input_s <= 1.01
    assert report.verdict != "fail" or point.limited_by in ("deadline", "load_generator")


def test_the_second_session_waits_without_a_message_and_is_recognized(server: str) -> None:
    report = measure(server, 3, 3.0)
    assert report.capacity is not None
    (point,) = report.capacity.trials
    assert point.network is not None
    assert (point.verdict, point.limited_by) == ("fail", "slots")
    assert point.sessions_ended_early == {"queue_timeout": 2}
    assert (
        point.network.sessions_started,
        point.network.sessions_rejected,
        point.network.sessions_queue_timeout,
    ) == (1, 0, 2)
    assert "reported no queue" in point.network.end_details["queue_timeout"]


def test_the_search_learns_that_there_is_one_slot(server: str) -> None:
    report = measure(server, None, 8.0)
    assert report.capacity is not None
    assert max(point.sessions for point in report.capacity.trials) <= 2
    if report.verdict == "pass":  # on a busy machine one session may be inconclusive
        assert (report.capacity.safe_sessions, report.capacity.lowest_failing_sessions) == (1, 2)
        assert report.capacity.limited_by == "slots"
