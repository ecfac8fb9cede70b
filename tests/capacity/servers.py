"""Servers that misbehave, on loopback, and what a point over the network needs."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading

import numpy as np
from websockets.asyncio.server import serve

from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.backends.websocket.backend import WebsocketBackend, at_rate, start_local_host
from metronome_cli.backends.websocket.endpoint import SessionTimeouts, endpoint
from metronome_cli.capacity.context import TrialContext
from metronome_cli.core.stop import StopRequest
from metronome_cli.measure.objective import Objective
from metronome_cli.protocols.registry import host_codec
from metronome_cli.results.events import ObserverGroup

from .builders import Noise, small_profile

QUICK = SessionTimeouts(connect_s=0.6, ready_s=0.6, idle_s=0.8, stall_s=0.6)
QUIET = logging.getLogger("tests.servers")
QUIET.propagate = False
QUIET.setLevel(logging.CRITICAL)


def server_context(
    url,
    protocol="moshi-server",
    length_s=2.0,
    audio=None,
    limits=QUICK,
    fetch=None,
    starter=start_local_host,
    **profile,
):
    """The conditions of trials on a server."""
    found = endpoint(url, protocol, limits, environ={})
    rate = found.traits.sample_rate
    return TrialContext(
        backend=WebsocketBackend(found, starter, fetch),
        profile=at_rate(small_profile(**profile), rate),
        audio=audio or Noise(round(0.08 * rate), 0.08),
        objectives=(Objective.parse("p99<80ms"), Objective.parse("empty<1%")),
        clock="real",
        batching="continuous",
        session_length_s=length_s,
        seed=1,
        observer=ObserverGroup(),
        stop=StopRequest(),
        max_sessions=8,
    )


@contextlib.contextmanager
def raw_server(handle):
    """A TCP server; `handle(reader, writer)` is a coroutine function."""

    async def guarded(reader, writer):
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await handle(reader, writer)
        finally:
            writer.transport.abort()
            await asyncio.sleep(0)  # let it take effect

    async def start():
        return await asyncio.start_server(guarded, "127.0.0.1", 0)

    with _served(start) as url:
        yield url


@contextlib.contextmanager
def web_server(handle, **options):
    """A websocket server; `handle(socket)` is a coroutine function."""

    async def start():
        return await serve(handle, "127.0.0.1", 0, logger=QUIET, close_timeout=0.2, **options)

    with _served(start) as url:
        yield url


@contextlib.contextmanager
def _served(start):
    thread = EventLoopThread("server")
    server = thread.wait(start())
    try:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
    finally:
        thread.post(server.close)
        thread.wait(cancel_all())
        thread.close()


async def cancel_all():
    for _ in range(3):  # ending one may start another
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)


async def upgrade(reader, writer):
    """The server's half of a handshake, by hand."""
    import base64
    import hashlib

    request = await reader.readuntil(b"\r\n\r\n")
    key = next(
        line.split(b": ")[1]
        for line in request.split(b"\r\n")
        if line.lower().startswith(b"sec-websocket-key")
    )
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )  # fmt: skip


def frame(payload):
    """One binary websocket frame of fewer than 126 bytes."""
    return bytes([0x82, len(payload)]) + payload


async def answer_all(socket, codec=None, rate=1.0):
    """Answer each frame; `rate` of them."""
    codec = codec or host_codec("moshi-server")()
    owed = 0.0
    for message in codec.greeting():
        await socket.send(message)
    async for message in socket:
        if not codec.read(message):
            continue
        owed += rate
        while owed >= 1.0:
            owed -= 1.0
            for out in codec.answer(np.zeros(1920, dtype=np.float32), "", 0):
                await socket.send(out)


def bounded(work, seconds=30.0):
    """Its result, in a thread: a hang fails the test and does not hang it."""
    result = []
    thread = threading.Thread(target=lambda: result.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the run did not end"
    return result[0]


ANSWERING = """
import asyncio, sys
sys.path.insert(0, {root!r})
from tests.capacity.servers import answer_all, serve
async def main():
    async with await serve(answer_all, "127.0.0.1", {port}) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


class Killable:
    """An answering server in a process of its own."""

    def __init__(self, port=0):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        code = ANSWERING.format(root=root, port=port)
        self._process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.port = int(self._process.stdout.readline())
        self.url = f"ws://127.0.0.1:{self.port}"

    def kill(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)
        self._process.stdout.close()
