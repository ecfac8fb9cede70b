"""Where the reference server cannot listen, and how it ends when it is asked to."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest

from metronome_cli.backends.simulated_engine import SimulatedEngine
from metronome_cli.cli.main import run
from metronome_cli.core.errors import UsageError
from metronome_cli.core.stop import StopRequest
from metronome_cli.server import reference_server as module
from metronome_cli.server.reference_server import ReferenceServer, ServePlan
from tests.capacity.builders import small_profile


@pytest.mark.parametrize(("host", "says"), [
    ("192.0.2.1", "--host 192.0.2.1: "), ("nowhere.invalid", "--host nowhere.invalid: "), ("a" * 70, "--host aaa"),
    ("127.0.0.1", "--port PORT: address already in use"),
])  # fmt: skip
def test_what_is_wrong_with_the_place_to_listen_at_is_named(host, says):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plan = ServePlan(small_profile(), "realtime", host=host, port=port)
        server = ReferenceServer(plan, SimulatedEngine(plan.profile, 1, lambda count: 0.0))
        with pytest.raises(UsageError, match=says.replace("PORT", str(port))):
            asyncio.run(server.run(StopRequest(), pytest.fail))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_asked_to_end_has_done_what_it_should(number):
    command = [sys.executable, "-m", "metronome_cli", "serve", "--profile", "smoke", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert "ws://" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(30) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_server_that_is_asked_to_end_before_it_is_up_was_interrupted(number, code, monkeypatch, capsys):
    monkeypatch.setattr(module, "warm_up_engine", lambda *given: os.kill(os.getpid(), number))
    assert run(["serve", "--profile", "smoke", "--port", "0"]) == code
    assert "ws://" not in capsys.readouterr().err
