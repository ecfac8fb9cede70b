"""`--prometheus-listen HOST:PORT`: an observer that answers GET /metrics while the run lasts.

The server lives in daemon threads of its own and answers from what the run last told; a scrape never waits for
a step, nor a step for a scrape (but for the interpreter's lock, a fraction of a millisecond each time).
"""

from __future__ import annotations

import ipaddress
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from metronome_cli import __version__
from metronome_cli.core.errors import UsageError
from metronome_cli.report.prometheus import CONTENT_TYPE, CounterTotals, exposition, gauges
from metronome_cli.results.events import Snapshot

PATH = "/metrics"
_TIMEOUT_S = 5.0  # for the request of a scraper


class MetricsServer:
    """Serves the run's series on that address until `close`. Raises UsageError where it cannot listen.

    `address` is (host, port); port 0 takes a free one. `url` is where to scrape.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._totals = CounterTotals()
        self._last: Snapshot | None = None
        self._lock = threading.Lock()
        self._server = _listen(address, self.page)
        host, port = self._server.server_address[:2]
        self.url = f"http://{_bracketed(str(host))}:{port}{PATH}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True
        )
        self._thread.start()

    def page(self) -> str:
        """Return the content of a scrape now."""
        with self._lock:
            parts = list(self._totals.rows())
            if self._last is not None:
                parts += gauges(self._last, __version__)
        return exposition(parts)

    def phase(self, name: str, detail: str) -> None:
        """The next snapshot says so."""

    def snapshot(self, snapshot: Snapshot) -> None:
        """One more window."""
        with self._lock:
            self._last = snapshot
            if snapshot.window is not None:
                self._totals.add(snapshot.window)

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """Judged points and collapses are counted."""
        with self._lock:
            if kind == "trial":
                self._totals.points[str(data.get("verdict"))] += 1
            elif kind == "collapse":
                self._totals.collapses += 1

    def notice(self, message: str) -> None:
        """Do nothing: notices are for the user."""

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _listen(address: tuple[str, int], page: Any) -> ThreadingHTTPServer:
    class Handler(_Handler):
        content = staticmethod(page)

    class Server(_Server):
        address_family = socket.AF_INET6 if _is_v6(address[0]) else socket.AF_INET

    try:
        return Server(address, Handler)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"--prometheus-listen: cannot listen on {_bracketed(address[0])}:{address[1]}: {why}",
            hint="give another address, such as :9465",
        ) from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a scraper that dawdles must not hold up the end of the run

    def server_bind(self) -> None:
        """As a plain TCP server does it: the library's own asks a name server for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "metronome", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a scraper that closes its connection early."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT_S
    server_version = f"metronome/{__version__}"
    content: Any

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        found = path in (PATH, "/")
        body = (self.content() if found else f"the series are at {PATH}\n").encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def _is_v6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
