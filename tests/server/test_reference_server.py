"""The reference server, and the whole path through its sockets: each protocol, refusals, a search, a full pool."""

import contextlib
import re
import signal
import socket as sockets
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from metronome_cli.backends.simulated_engine import SimulatedEngine
from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.backends.websocket.backend import WebsocketSetup
from metronome_cli.backends.websocket.endpoint import SessionTimeouts, endpoint
from metronome_cli.backends.websocket.monitor import ServerMonitor
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.commands.capacity_on_server import run_on_server
from metronome_cli.core.clock import RealClock
from metronome_cli.core.errors import UsageError
from metronome_cli.core.metrics_page import fetch
from metronome_cli.core.stop import StopRequest
from metronome_cli.measure.objective import Objective
from metronome_cli.protocols.moshi_server import pack as msgpacked
from metronome_cli.protocols.prometheus_text import parse
from metronome_cli.protocols.registry import HOSTED, client_codec
from metronome_cli.protocols.server_metrics import read
from metronome_cli.report.html.page import render_html
from metronome_cli.report.plain_text import render_text
from metronome_cli.server.reference_server import ReferenceServer, ServePlan
from tests.capacity.builders import Noise, small_profile
from tests.capacity.servers import QUICK, bounded, server_context

BY_FRAMES = [name for name in HOSTED if name not in ("minicpm", "transcription")]
STEADY = [name for name in HOSTED if client_codec(name)().traits.steady]


@contextlib.contextmanager
def reference(protocol="moshi-server", slots=8, when_full="refuse", idle_s=60.0, **profile):
    """A reference server on a simulated engine, in this process; its address."""
    plan = ServePlan(small_profile(**profile), protocol, slots=slots, when_full=when_full, idle_s=idle_s)
    server = ReferenceServer(plan, SimulatedEngine(plan.profile, slots, lambda count: 0.0))
    thread, stop, where, over = EventLoopThread("server"), StopRequest(), [], threading.Event()
    listening = threading.Event()

    def announce(address):
        where.append(address)
        listening.set()

    async def serve():
        try:
            await server.run(stop, announce)
        finally:
            over.set()

    thread.spawn(serve())
    assert listening.wait(10)
    try:
        yield where[0]
    finally:
        stop.signum = signal.SIGINT
        assert over.wait(10)
        thread.close()


def metrics_of(url):
    return f"http://{url.split('/')[2]}/metrics"


def measured(context, sessions):
    run = Trial(context, TrialPlan(sessions, "single", length_s=context.session_length_s, until="end"))
    return bounded(lambda: run.run(into=[]).result)


class Utterances:
    """Half a second of noise, then as long a pause as ends a turn."""

    def __init__(self, samples):
        self._noise = Noise(samples, 0.08)

    def stream(self, index):
        noise = self._noise.stream(index)
        return SimpleNamespace(frame=lambda k: noise.frame(k) * (k % 16 < 7))

    def phase_s(self, index):
        return self._noise.phase_s(index)


@pytest.mark.parametrize("protocol", BY_FRAMES)
def test_every_protocol_is_served_and_measured_without_losing_a_session(protocol):
    streams = Utterances(1920) if protocol == "realtime" else None
    with reference(protocol) as url:
        point = measured(server_context(url, protocol, length_s=3.0, audio=streams), 2)
    assert point.sessions_ended_early == {}
    assert point.frames > 20
    assert point.empty_frames == 0
    assert (
        point.network.sessions_started,
        point.network.sessions_rejected,
        point.network.sessions_queue_timeout,
    ) == (2, 0, 0)
    assert point.network.session_setup_ms.max is not None
    if protocol in STEADY:
        assert point.network.output_s_per_input_s == pytest.approx(1.0, abs=0.15)
    assert (point.network.server_backlog_ms.p50 is not None) == (protocol == "moshi-server")


@pytest.mark.parametrize("protocol", BY_FRAMES)
@pytest.mark.parametrize(("when_full", "reason"), [("refuse", "rejected"), ("queue", "queue_timeout")])
def test_a_full_server_refuses_or_lets_wait_and_the_report_tells_them_apart(protocol, when_full, reason):
    with reference(protocol, slots=2, when_full=when_full) as url:
        point = measured(server_context(url, protocol, length_s=1.5), 3)
    assert point.sessions_ended_early == {reason: 1}
    assert (point.verdict, point.limited_by, point.ended_by) == ("fail", "slots", "rejected")
    assert (
        point.network.sessions_started,
        point.network.sessions_rejected,
        point.network.sessions_queue_timeout,
    ) == (
        2,
        reason == "rejected",
        reason == "queue_timeout",
    )


class OnceStalled:
    """A process that was not scheduled for 1.5 s after the trial had begun."""

    def __init__(self):
        self._asked = 0

    def beat(self):
        self._asked += 1
        return 1.5 if self._asked > 2 else 0.0


def test_who_was_rejected_stays_rejected_though_the_generator_stalled():
    with reference(slots=2) as url:
        point = measured(replace(server_context(url, length_s=1.5), stalls=OnceStalled()), 3)
    assert (point.verdict, point.limited_by, point.ended_by) == ("fail", "slots", "rejected")
    assert "rejected" in point.reason
    assert {result.verdict for result in point.objectives} == {"inconclusive"}


def test_scrapes_before_the_first_session_are_not_counted():
    page = ["0.5"]
    with reference() as url:
        monitor = ServerMonitor(
            endpoint(url, "moshi-server", QUICK, {}),
            RealClock(),
            (),
            lambda: False,
            lambda: f"vllm:kv_cache_usage_perc {page[0]}\n",
            every_s=0.01,
        )
        until(lambda: monitor.stats().occupancy_max == 0.5)
        page[0] = "0.125"
        until(lambda: monitor.stats().pool.occupancy == 0.125)
        monitor.begin()
        until(lambda: monitor.stats().occupancy_max is not None)
        monitor.close()
    assert monitor.stats().occupancy_max == 0.125
    assert set(monitor.stats().occupancy.occupancy) == {0.125}


def test_a_scrape_is_read_while_another_is_written():
    """Twelve engines whose number changes with every scrape, read as fast as they come: neither side ever fails."""
    pages = iter(range(10**9))

    def page():
        engines = range(next(pages) % 12 + 1)
        return "".join(f'vllm:kv_cache_usage_perc{{engine="{e}"}} 0.{e + 1:02}\n' for e in engines)

    monitor = ServerMonitor(
        endpoint("ws://127.0.0.1:1", "moshi-server", QUICK, {}),
        RealClock(),
        (),
        lambda: False,
        page,
        every_s=0.0,
    )
    until(lambda: monitor.stats().network.scrapes > 200)
    monitor.close()
    assert monitor.stats().network.failed_scrapes == 0


def until(holds, seconds=10.0):
    """Wait for it."""
    for _ in range(int(seconds / 0.005)):
        if holds():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come")


def test_a_freed_slot_goes_to_a_waiting_session():
    with reference("moshi", slots=1, when_full="queue") as url, connect(url) as first:
        assert first.recv(timeout=5) == b"\0"
        with connect(url) as second:
            with pytest.raises(TimeoutError):
                second.recv(timeout=0.2)
            first.close()
            assert second.recv(timeout=5) == b"\0"


def test_garbage_is_answered_with_a_close_code():
    with reference("moshi-server") as url, connect(url) as client:
        client.recv(timeout=5)
        client.send("no msgpack")
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=5)
    assert closed.value.rcvd.code == 1007


def test_other_paths_are_not_found_and_the_metrics_are_those_of_vllm():
    with reference("moshi") as url:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url.replace("ws:", "http:").replace("/api/chat", "/other"), timeout=5)
        refused.value.close()
        assert refused.value.code == 404
        reading = read(parse(fetch(metrics_of(url))))
    assert (reading.server, reading.pool_tokens, reading.preempted) == ("vLLM", 2000 * 16, 0)


def test_a_port_that_is_taken_is_the_users_mistake():
    with sockets.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        plan = ServePlan(small_profile(), "moshi", port=held.getsockname()[1])
        server = ReferenceServer(plan, SimulatedEngine(plan.profile, 1, lambda count: 0.0))
        thread = EventLoopThread("server")
        try:
            with pytest.raises(UsageError, match="--port"):
                thread.wait(server.run(StopRequest(), print))
        finally:
            thread.close()


def searched(url, scrape=None, sessions=None, length_s=6.0, limits=QUICK, **profile):
    plan = CapacityPlan(
        profile=small_profile(**profile),
        objectives=(Objective.parse("p90<80ms"), Objective.parse("empty<10%")),
        session_length_s=length_s,
        sessions=sessions,
        max_sessions=12,
    )
    remote = WebsocketSetup(url, "moshi-server", scrape, limits=limits, environ={}, scrape_every_s=0.2)
    return bounded(lambda: run_on_server(plan, remote), 60)


def test_sessions_that_give_up_free_the_pool_and_are_still_lost_to_memory():
    with reference(policy="unbounded", blocks=40) as url:
        report = searched(url, metrics_of(url), 4, 8.0, policy="unbounded")
    (point,) = report.capacity.trials
    assert (point.verdict, point.limited_by) == ("fail", "memory")
    assert point.sessions_ended_early["no_output"] > 0


@pytest.mark.parametrize("when_full", ["refuse", "queue"])
def test_a_search_finds_the_slots_and_shows_that_one_more_session_is_rejected(when_full):
    with reference(slots=3, when_full=when_full) as url:
        report = searched(url)
    found = report.capacity
    assert (found.safe_sessions, found.lowest_failing_sessions, found.limited_by) == (3, 4, "slots")
    assert report.verdict == "pass"
    assert max(point.sessions for point in found.trials) == 4
    assert "Safe concurrency: 3 sessions" in report.summary
    assert "Limited by: slots" in report.summary


def test_a_scrape_names_memory_and_forecasts_when_the_pool_is_full():
    """A pool for some ten seconds of four sessions: every frame stays on time until none comes."""
    with reference(policy="unbounded", blocks=120) as url:
        report = searched(url, metrics_of(url), 4, 40.0, SessionTimeouts(idle_s=20.0), policy="unbounded")
    (point,) = report.capacity.trials
    assert (point.verdict, point.limited_by, point.ended_by) == ("fail", "memory", "pool_full")
    assert point.collapse is not None
    assert point.collapse.waiting == 4
    assert point.collapse.last_output_s == pytest.approx(point.pool_full_at_s, abs=2.0)
    assert point.occupancy_max > 0.9
    assert "no session produced output" in point.reason
    forecast = report.forecast
    assert forecast.observed_fill_time_s == pytest.approx(point.pool_full_at_s, abs=0.01)
    assert forecast.fitted_until_s < 0.6 * point.pool_full_at_s
    assert forecast.fill_time_s.estimate == pytest.approx(point.pool_full_at_s, rel=0.2)
    assert "Limited by: memory" in report.summary
    assert "forecast" in report.summary
    assert any(window.occupancy for window in point.windows)
    for view in (render_text(report, 120), render_html(report)):
        assert "Network, ms" in view
        assert "pool full in the trace" in view
        assert "no session produced output" in view
        assert "the server&#x27;s own" in view or "the server's own" in view or "the server&#39;s own" in view
        assert url in view


def test_a_bounded_cache_is_not_forecast_to_fill():
    with reference(policy="window(32, 16)") as url:
        report = searched(url, metrics_of(url), sessions=2, length_s=8.0)
    assert report.capacity.trials[0].limited_by != "memory"
    assert report.forecast.fills is False
    assert report.forecast.observed_fill_time_s is None


def test_a_scrape_that_fails_leaves_the_pool_unknown_and_the_run_whole():
    with reference() as url:
        context = server_context(url, length_s=2.0, fetch=partial(fetch, metrics_of(url) + "/nothing"))
        point = measured(context, 1)
    assert point.sessions_ended_early == {}
    assert point.occupancy_max is None
    assert (point.network.scrapes, point.network.failed_scrapes > 0) == (0, True)


@pytest.mark.slow
def test_the_command_serves_until_its_time_is_over():
    command = [
        sys.executable,
        "-m",
        "metronome_cli",
        "serve",
        "--protocol",
        "realtime",
        "--port",
        "0",
        "--duration",
        "8s",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        url = re.search(r"ws://\S+", line)[0]
        point = measured(server_context(url, "realtime", length_s=3.0, audio=Utterances(1920)), 2)
        assert process.wait(30) == 0
    assert (point.sessions_ended_early, point.empty_frames) == ({}, 0)
    assert point.frames > 0


def test_a_client_that_sends_nothing_loses_its_slot():
    with reference("moshi-server", slots=1, idle_s=0.3) as url, connect(url) as silent:
        silent.recv(timeout=5)
        with pytest.raises(ConnectionClosed) as closed:
            silent.recv(timeout=5)
        assert closed.value.rcvd.code == 1008
        with connect(url) as second:
            assert second.recv(timeout=5)


def test_audio_that_is_not_finite_ends_its_own_session_and_no_other():
    with reference("moshi-server") as url, connect(url) as good, connect(url) as bad:
        for client in (good, bad):
            client.recv(timeout=5)
        bad.send(msgpacked(type="Audio", pcm=[float("nan")] * 1920))
        with pytest.raises(ConnectionClosed) as closed:
            bad.recv(timeout=5)
        assert closed.value.rcvd.code == 1007
        good.send(msgpacked(type="Audio", pcm=[0.0] * 1920))
        assert good.recv(timeout=5)


@pytest.mark.parametrize(
    ("origin", "opens"),
    [("https://evil.example", False), ("http://localhost:3000", True), (None, True)],
)
def test_a_page_of_another_site_may_not_connect(origin, opens):
    with reference("moshi-server") as url, contextlib.ExitStack() as stack:
        if opens:
            assert stack.enter_context(connect(url, origin=origin)).recv(timeout=5)
        else:
            with pytest.raises(InvalidStatus) as refused:
                connect(url, origin=origin)
            assert refused.value.response.status_code == 403


def test_minicpm_answers_each_unit_of_a_second():
    limits = replace(QUICK, idle_s=5.0)
    with reference("minicpm", frame={"period": "1s", "sample_rate": 16000}) as url:
        context = server_context(
            url,
            "minicpm",
            length_s=3.0,
            limits=limits,
            audio=Noise(16000, 1.0),
            frame={"period": "1s", "sample_rate": 16000},
        )
        point = measured(context, 2)
    assert point.sessions_ended_early == {}
    assert point.frames > 0
    assert point.empty_frames == 0
