"""`predict` from a running server: watched on a clock of the test's own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from metronome_cli.backends.websocket.backend import WebsocketSetup
from metronome_cli.commands.predict.from_metrics import ScrapePlan, forecast_from_metrics
from metronome_cli.core import metrics_page
from metronome_cli.core.errors import EngineError, UsageError
from metronome_cli.core.metrics_page import fetch
from metronome_cli.core.stop import StopRequest
from metronome_cli.report.plain_text import render_text
from metronome_cli.results.events import ObserverGroup
from metronome_cli.results.run_report import Report


class TestTimer:
    """Waits by adding up."""

    __test__ = False

    def __init__(self) -> None:
        self.t_s = 0.0

    def now(self) -> float:
        return self.t_s

    def wait(self, seconds: float, stop: StopRequest) -> None:
        self.t_s += max(0.0, seconds)


class Heard:
    """Keeps what an observer is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.notices: list[str] = []

    def phase(self, name: str, detail: str) -> None: ...

    def snapshot(self, snapshot: Any) -> None: ...

    def event(self, kind: str, data: dict[str, Any]) -> None:
        self.lines.append(data["line"])

    def notice(self, message: str) -> None:
        self.notices.append(message)

    def close(self) -> None: ...


def page(level: float, tokens: float = 0.0) -> str:
    return (
        f'vllm:kv_cache_usage_perc{{engine="0"}} {level}\nvllm:num_requests_running{{engine="0"}} 4\n'
        f'vllm:num_requests_waiting{{engine="0"}} 0\nvllm:generation_tokens_total{{engine="0"}} {tokens}\n'
    )


def watched(
    level: Callable[[float], float | None],
    heard: Heard | None = None,
    stop: StopRequest | None = None,
    **keys: Any,
) -> Report:
    """Watch a server whose occupancy at t is `level(t)`; None: it does not answer."""
    timer = TestTimer()

    def get(address: str) -> str:
        value = level(timer.now())
        if value is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return page(min(1.0, value), 0.0 if value >= 1 else 100 * timer.now())

    plan = ScrapePlan("localhost:8000", **keys)
    return forecast_from_metrics(plan, heard or ObserverGroup(), stop or StopRequest(), get, timer)


def test_once_forecasts_and_leaves() -> None:
    report = watched(lambda t: 0.1 + 0.001 * t, once=True)
    assert report.forecast is not None
    assert report.forecast.fill_time_s.estimate == pytest.approx(900, rel=0.01)
    assert report.exit_code == 0  # not within ten minutes
    assert report.forecast.details["server"] == "vLLM"
    assert "times count from the first scrape" in report.forecast.assumptions
    assert "t_sat_s" not in render_text(report)


@pytest.mark.parametrize(("slope", "code"), [(0.001, 0), (0.01, 3)])
def test_once_has_an_exit_code_for_alerting(slope: float, code: int) -> None:
    assert watched(lambda t: slope * t, once=True, fail_within_s=300.0).exit_code == code


def test_watching_ends_when_the_alarm_goes() -> None:
    heard = Heard()
    report = watched(lambda t: 0.002 * t, heard, fail_within_s=200.0)
    assert report.exit_code == 3
    assert report.forecast is not None
    assert report.forecast.remaining_s == pytest.approx(200, abs=2)
    assert "full in" in heard.lines[-1]
    assert len(heard.lines) == pytest.approx(300, abs=3)


def test_a_collapse_ends_the_watch_and_fails() -> None:
    report = watched(lambda t: 0.02 * t)
    assert report.forecast is not None
    assert report.forecast.collapsed
    assert report.exit_code == 3
    assert "collapsed" in report.summary


def test_a_flat_server_does_not_saturate() -> None:
    report = watched(lambda t: 0.3, once=True)
    assert report.forecast is not None
    assert report.forecast.fills is False
    assert report.exit_code == 0
    assert "does not saturate" in report.summary


def test_a_figure_that_is_no_number_is_named_once_and_never_shown() -> None:
    heard, timer = Heard(), TestTimer()
    text = page(0.3, 10).replace('num_requests_running{engine="0"} 4', 'num_requests_running{engine="0"} NaN')
    plan = ScrapePlan("http://host:8000", watch_s=8)
    report = forecast_from_metrics(plan, heard, StopRequest(), lambda _: text, timer)
    assert [
        note for note in heard.notices if "vllm:num_requests_running is unknown" in note
    ] == heard.notices[:1]
    assert report.forecast is not None
    assert report.forecast.details["running"] is None


def test_a_server_that_is_not_there_ends_the_watch_at_once() -> None:
    with pytest.raises(EngineError, match="no server listens there"):
        watched(lambda t: None, once=True)


def test_a_gap_is_stated_and_bridged() -> None:
    heard = Heard()
    report = watched(lambda t: None if 10 <= t < 13 else 0.005 * t, heard, watch_s=60.0)
    assert report.forecast is not None
    assert report.forecast.fill_time_s.estimate == pytest.approx(200, abs=1)
    assert any("no answer" in gap for gap in report.forecast.sample_notes)
    assert any("responds again" in notice for notice in heard.notices)


def test_metrics_that_vanish_are_a_gap_and_missing_ones_an_error() -> None:
    timer = TestTimer()

    def get(address: str) -> str:
        return page(0.005 * timer.now()) if timer.now() < 40 else "other 1\n"

    report = forecast_from_metrics(
        ScrapePlan("localhost:8000", watch_s=45.0, fail_within_s=1.0),
        ObserverGroup(),
        StopRequest(),
        get,
        timer,
    )
    assert report.forecast is not None
    assert any("no occupancy" in gap for gap in report.forecast.sample_notes)
    assert report.exit_code == 4
    with pytest.raises(UsageError, match="no occupancy"):
        forecast_from_metrics(
            ScrapePlan("localhost:8000"),
            ObserverGroup(),
            StopRequest(),
            lambda address: "other 1\n",
            TestTimer(),
        )


def test_a_signal_leaves_a_partial_report() -> None:
    stop = StopRequest()

    def level(t: float) -> float:
        if t >= 20 and not stop():
            stop.request(2)
        return 0.01 * t

    report = watched(level, stop=stop)
    assert (report.status, report.exit_code) == ("interrupted", 130)
    assert report.forecast is not None
    assert report.forecast.fill_time_s.estimate == pytest.approx(100, abs=1)


@pytest.mark.parametrize("url", ["ftp://host/x", "http://", "http://me:secret@host/metrics"])
def test_addresses_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="metrics URL"):
        _ = ScrapePlan(url).address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("host:8000", "http://host:8000/metrics"), ("http://host", "http://host/metrics"),
        ("https://host/a/metrics?x=1", "https://host/a/metrics?x=1"),
    ],
)  # fmt: skip
def test_addresses_are_completed(url: str, address: str) -> None:
    assert ScrapePlan(url).address == address


@contextmanager
def served(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_over_http() -> None:
    with served(200, page(0.25).encode()) as address:
        assert fetch(address) == page(0.25)
    with pytest.raises(OSError, match="refused"):
        fetch(address)


@pytest.mark.parametrize(
    ("status", "error"), [(404, UsageError), (401, UsageError), (302, UsageError), (503, OSError)]
)
def test_http_errors(status: int, error: type[Exception]) -> None:
    with served(status, b"") as address, pytest.raises(error, match=str(status)):
        fetch(address)


def failing(error: OSError) -> Callable[[str], str]:
    def get(address: str) -> str:
        raise error

    return get


@pytest.mark.parametrize(("error", "says"), [
    (metrics_page.NoPageError("HTTP 500"), "gave no metrics (HTTP 500) in 8 scrapes"),
    (OSError("it hung up"), "never answered in 8 scrapes"),
])  # fmt: skip
def test_a_server_that_answered_is_not_said_to_be_silent(error: OSError, says: str) -> None:
    plan = ScrapePlan("http://127.0.0.1:1", once=True, watch_s=7.0)
    report = forecast_from_metrics(plan, Heard(), StopRequest(), failing(error), TestTimer())
    assert says in report.summary
    assert report.exit_code == 4
    assert report.forecast is not None
    assert report.forecast.reason.startswith(f"the server {says.rpartition(' in ')[0]}")


@pytest.mark.parametrize(("status", "says"), [(500, r"no metrics \(HTTP 500\)"), (404, "HTTP 404")])
def test_sessions_of_a_server_are_told_of_its_metrics_likewise(status: int, says: str) -> None:
    with served(status, b"") as address, pytest.raises(UsageError, match=says):
        WebsocketSetup("ws://127.0.0.1:1", scrape=address).fetch()


def test_who_hangs_up_has_not_answered() -> None:
    with (
        answering(b"") as address,
        pytest.raises(OSError, match="closed the connection without an answer") as caught,
    ):
        fetch(address)
    assert not isinstance(caught.value, metrics_page.NoPageError)


@contextmanager
def answering(*pieces: bytes) -> Iterator[str]:
    """A port that answers with these bytes, over and over the last of them, until the client has left."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            client = door.accept()[0]
            with client, suppress(OSError):
                client.recv(65536)
                for piece in pieces:
                    client.sendall(piece)
                while pieces[-1].startswith(b"#"):
                    time.sleep(0.01)
                    client.sendall(pieces[-1])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}/metrics"
        thread.join(10)
        assert not thread.is_alive()


def test_an_answer_that_drips_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_page, "TIMEOUT_S", 0.3)
    with answering(b"HTTP/1.1 200 OK\r\n\r\n", b"#") as address, pytest.raises(OSError, match="did not end"):
        fetch(address)


def test_what_is_not_http_is_told_in_words() -> None:
    with (
        answering(bytes(range(128, 255)) + b"\r\n\r\n") as address,
        pytest.raises(OSError, match="is not HTTP"),
    ):
        fetch(address)


def test_headers_that_drip_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_page, "TIMEOUT_S", 0.3)
    with (
        answering(b"HTTP/1.1 200 OK\r\nX: ", b"#") as address,
        pytest.raises(OSError, match="no answer within"),
    ):
        fetch(address)
