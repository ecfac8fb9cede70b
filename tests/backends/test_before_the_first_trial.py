"""What a server does before anything is measured: a silent port, a list of models that drips, a failure of its own."""

import asyncio
import signal
import socket as sockets
import subprocess
import sys
import time

from metronome_cli.backends.websocket.detect import served_model
from metronome_cli.backends.websocket.endpoint import SessionTimeouts, endpoint
from tests.backends.test_websocket_faults import ends_all
from tests.capacity.servers import bounded, raw_server, web_server


def test_a_list_of_models_that_drips_is_given_up_at_the_deadline():
    async def drip(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b" ")
            await asyncio.sleep(0.05)

    with raw_server(drip) as url:
        found = endpoint(url, "vllm-realtime", SessionTimeouts(connect_s=0.5), environ={})
        assert bounded(lambda: served_model(found), 10) is None


def test_a_server_that_fails_before_the_session_is_ready_has_said_nothing_of_its_slots():
    async def fails(socket):
        await socket.close(1011, "internal error")

    with web_server(fails) as url:
        point = ends_all(url, "server_error")
    assert point.limited_by != "slots"


def test_ctrl_c_ends_a_connection_to_a_silent_port():
    with sockets.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        command = [sys.executable, "-m", "metronome_cli", "capacity", "--url",
                   f"ws://127.0.0.1:{silent.getsockname()[1]}", "--connect-timeout", "60s"]  # fmt: skip
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as process:
            silent.settimeout(30)
            connected, _ = silent.accept()
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
            connected.close()
    assert process.returncode == 128 + signal.SIGINT, said
    assert "Traceback" not in said
