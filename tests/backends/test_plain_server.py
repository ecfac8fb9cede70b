"""A server without TLS, asked for with wss://, and one whose metrics are beside its socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from websockets.asyncio.server import ServerConnection, serve

from metronome_cli.backends.websocket.backend import WebsocketSetup
from metronome_cli.backends.websocket.endpoint import ConnectError, endpoint


def test_wss_to_a_server_without_tls_says_so() -> None:
    async def hold(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async def attempt() -> str:
        async with serve(hold, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            with pytest.raises(ConnectError) as caught:
                await endpoint(f"wss://127.0.0.1:{port}", "realtime").connect()
            return str(caught.value.detail)

    assert "use ws:// in place of wss://" in asyncio.run(attempt())


@contextmanager
def page(text: str) -> Iterator[str]:
    """A server with that text at /metrics; its host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0.25\n", True),
        ("# TYPE something gauge\nsomething 1\n", False),
    ],
)
def test_metrics_beside_the_socket_are_used_if_they_tell_the_occupancy(text: str, found: bool) -> None:
    with page(text) as where:
        assert (WebsocketSetup(f"ws://{where}", try_metrics=True).fetch() is not None) == found
        assert WebsocketSetup(f"ws://{where}").fetch() is None


def test_a_server_without_metrics_is_measured_without_them() -> None:
    assert WebsocketSetup("ws://127.0.0.1:9", try_metrics=True).fetch() is None
