"""A server may do anything: every session ends with a named reason, the point is whole, nothing is left behind."""

import asyncio
import contextlib
import os
import socket as sockets
import threading
import time
import urllib.parse

import numpy as np
import pytest

from metronome_cli.backends.websocket.endpoint import SessionTimeouts
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.core.errors import EngineError
from metronome_cli.protocols.moshi_server import pack
from metronome_cli.protocols.registry import host_codec
from metronome_cli.results.capacity_result import TrialResult
from tests.capacity.builders import Noise
from tests.capacity.servers import (
    Killable,
    answer_all,
    bounded,
    frame,
    raw_server,
    server_context,
    upgrade,
    web_server,
)

SESSIONS = 3


def sockets_to(url):
    """Of this process to that server, where that can be seen."""
    port = f":{urllib.parse.urlsplit(url).port:04X}"
    mine = set()
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):
            mine.add(os.readlink(f"/proc/self/fd/{name}"))
    with contextlib.suppress(OSError), open("/proc/self/net/tcp") as table:
        rows = [line.split() for line in table][1:]
        return [row for row in rows if row[2].endswith(port) and f"socket:[{row[9]}]" in mine]
    return []


def measured(context, sessions=SESSIONS, until="end", during=lambda trial: None, gone=False):
    """A result, after checking that it is whole and that nothing is left; `gone`: the server is, and that is said."""
    before = {thread for thread in threading.enumerate() if thread.name != "Thread-1"}
    plan = TrialPlan(sessions, "single", ages="start", length_s=context.session_length_s, until=until)
    trial = Trial(context, plan)
    worker = threading.Thread(target=during, args=(trial,), daemon=True)
    worker.start()
    points = []

    def work():
        with pytest.raises(EngineError, match="cannot be reached") if gone else contextlib.nullcontext():
            trial.run(into=points)
        return points[0]

    point = bounded(work)
    worker.join(5)
    assert TrialResult.model_validate_json(point.model_dump_json()) == point
    assert len(trial.load) == 0
    assert [host.loop.busy for host in trial.load.run.hosts] == [0]
    left = [t for t in threading.enumerate() if t not in before and t.name in ("sockets", "scrape")]
    assert left == []
    assert sockets_to(context.backend.endpoint.url) == []
    assert sum(point.network.end_reasons.values()) == sessions
    return trial, point


def ends_all(url, reason, gone=False, **options):
    """Every session ended for that reason, and the point says so."""
    _, point = measured(server_context(url, **options), gone=gone)
    assert point.sessions_ended_early == {reason: SESSIONS}
    assert point.verdict == "fail"
    assert f"{SESSIONS} {reason}" in point.reason
    return point


def after_steps(run, steps):
    """When that many were counted, and after a while in any case."""
    until = time.monotonic() + 20
    while run.load.recorder.total.batches < steps and time.monotonic() < until:
        threading.Event().wait(0.02)


async def hang(*_):
    await asyncio.sleep(60)


async def ready_then(socket, act):
    await socket.send(pack(type="Ready"))
    await socket.recv()
    await act(socket)


def test_no_server_listens():
    with sockets.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and not listening
        point = ends_all(f"ws://127.0.0.1:{held.getsockname()[1]}", "unreachable", gone=True)
    assert (point.ended_by, point.frames) == ("backend_error", 0)


def test_refuses_by_http():
    with web_server(hang, process_request=lambda c, r: c.respond(503, "full\n")) as url:
        point = ends_all(url, "rejected")
    assert (point.ended_by, point.limited_by) == ("rejected", "slots")
    assert "503" in point.reason


def test_refuses_in_words():
    async def refuse(socket):
        await socket.send(pack(type="Error", message="no free channels"))

    with web_server(refuse) as url:
        assert "no free channels" in ends_all(url, "rejected").reason


def test_hangs_before_the_upgrade():
    with raw_server(hang) as url:
        point = ends_all(url, "queue_timeout")
    assert (point.ended_by, point.limited_by) == ("rejected", "slots")


def test_lets_sessions_wait_for_a_slot_without_an_answer():
    with web_server(hang) as url:
        assert "reported no queue" in ends_all(url, "queue_timeout").reason


def test_trickles_the_upgrade():
    async def trickle(reader, writer):
        for byte in b"HTTP/1.1 101 Switching Protocols\r\n":
            writer.write(bytes([byte]))
            await asyncio.sleep(1.0)

    with raw_server(trickle) as url:
        ends_all(url, "queue_timeout")


def test_trickles_an_answer():
    async def trickle(reader, writer):
        await upgrade(reader, writer)
        writer.write(frame(pack(type="Ready")))
        writer.write(bytes([0x82, 100]))
        while True:
            writer.write(b"x")
            await asyncio.sleep(1.0)

    with raw_server(trickle) as url:
        ends_all(url, "no_output")


def test_starts_sessions_and_never_answers():
    with web_server(lambda socket: ready_then(socket, hang)) as url:
        point = ends_all(url, "no_output")
    assert point.limited_by == "empty_frames"


@pytest.mark.parametrize("how", ["closes", "breaks off", "half-closes"])
def test_goes_away_in_the_middle(how):
    async def leave(reader, writer):
        await upgrade(reader, writer)
        writer.write(frame(pack(type="Ready")))
        await reader.read(100)
        if how == "closes":
            writer.write(bytes([0x88, 2]) + (1011).to_bytes(2, "big"))
        elif how == "half-closes":
            writer.write_eof()
            await asyncio.sleep(60)

    with raw_server(leave) as url:
        point = ends_all(url, "connection_closed")
    assert point.ended_by == "backend_error"


@pytest.mark.parametrize("what", ["not a map", b"\x93\x01\x02\x03", b"\xff" * 40])
def test_sends_garbage(what):
    with web_server(lambda socket: ready_then(socket, lambda s: s.send(what))) as url:
        ends_all(url, "protocol_error")


def test_sends_what_is_no_websocket_frame():
    async def noise(reader, writer):
        await upgrade(reader, writer)
        writer.write(frame(pack(type="Ready")) + b"\xff\xff\xff\xff" * 20)
        await asyncio.sleep(5)

    with raw_server(noise) as url:
        ends_all(url, "protocol_error")


def test_answers_the_upgrade_with_noise():
    async def noise(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x00\x01\x02 no http\r\n\r\n")
        await writer.drain()
        writer.write_eof()
        await asyncio.sleep(0.2)

    with raw_server(noise) as url:
        ends_all(url, "protocol_error")


def test_reports_an_error_of_its_own():
    async def fail(socket):
        await socket.send(pack(type="Error", message="out of memory\nTraceback"))

    with web_server(lambda socket: ready_then(socket, fail)) as url:
        assert "out of memory Traceback" in ends_all(url, "server_error").reason


@pytest.mark.parametrize("how", ["one huge message", "many small ones", "hours of output"])
def test_floods(how):
    async def flood(socket):
        if how == "one huge message":
            await socket.send(b"x" * (17 << 20))
        while True:
            kind = {"many small ones": {"type": "Word", "text": "x"}}.get(how, {"type": "Step"})
            for _ in range(100):
                await socket.send(pack(**kind))
            await asyncio.sleep(0.0 if how == "many small ones" else 0.1)

    with web_server(lambda socket: ready_then(socket, flood)) as url:
        ends_all(url, "excess_output")


class Huge:
    """So much audio that a server which does not read fills every buffer on the way."""

    def stream(self, index):
        return self

    def phase_s(self, index):
        return 0.0

    def frame(self, k):
        return np.zeros(60_000, dtype=np.float32)


def test_takes_no_more_audio():
    async def deaf(reader, writer):
        await upgrade(reader, writer)
        writer.write(frame(pack(type="Ready")))
        while True:  # it speaks, and does not listen
            writer.write(frame(pack(type="Step", buffered_pcm=0)))
            await asyncio.sleep(0.08)

    with raw_server(deaf) as url:
        _, point = measured(server_context(url, audio=Huge(), length_s=20.0))
    assert point.sessions_ended_early == {"send_blocked": SESSIONS}
    assert point.verdict != "pass"


def test_falls_behind():
    with web_server(lambda socket: answer_all(socket, rate=0.3)) as url:
        _, point = measured(server_context(url, length_s=6.0, backlog_limit=5), until="settled")
    assert point.sessions_ended_early.get("fell_behind")
    assert (point.verdict, point.limited_by) == ("fail", "deadline")


def test_falls_silent_with_all_sockets_open():
    """The collapse as a client sees it: connected, and no output comes."""

    async def silent(socket):
        codec_answers = asyncio.ensure_future(answer_all(socket))
        await asyncio.sleep(2.0)
        codec_answers.cancel()
        await asyncio.sleep(60)

    patient = SessionTimeouts(idle_s=30.0)
    with web_server(silent) as url:
        _, point = measured(server_context(url, length_s=12.0, limits=patient))
    assert point.collapse is not None
    assert 1.0 < point.collapse.last_output_s < 4.0
    assert (point.verdict, point.limited_by) == ("fail", "empty_frames")


def test_a_healthy_server_loses_no_session():
    with web_server(answer_all) as url:
        _, point = measured(server_context(url, length_s=3.0))
    assert point.sessions_ended_early == {}
    assert point.frames > 0
    assert point.empty_frames == 0
    assert point.network.output_s_per_input_s == pytest.approx(1.0, abs=0.1)


def test_dies_by_sigkill_and_comes_back():
    server = Killable()
    try:

        def kill(run):
            after_steps(run, 15)
            server.kill()

        _, point = measured(server_context(server.url, length_s=20.0), during=kill, gone=True)
        assert point.sessions_ended_early == {"connection_closed": SESSIONS}
        assert (point.verdict, point.ended_by) == ("fail", "backend_error")
        again = Killable(server.port)
        try:
            _, after = measured(server_context(again.url, length_s=2.0))
            assert after.sessions_ended_early == {}
        finally:
            again.kill()
    finally:
        server.kill()


def test_a_stop_closes_all_sessions():
    seen = []

    def stop(run):
        after_steps(run, 5)
        seen.extend(sockets_to(run.context.backend.endpoint.url))
        run.context.stop.signum = 2

    with web_server(answer_all) as url:
        _, point = measured(server_context(url, length_s=60.0), during=stop)
    assert (point.ended_by, point.sessions_ended_early) == ("interrupted", {})
    assert len(seen) == (SESSIONS if os.path.exists("/proc/self/net/tcp") else 0)


async def answer_some(socket, frames=8):
    """Breaks off after that many."""
    codec = host_codec("moshi-server")()
    await socket.send(pack(type="Ready"))
    heard = 0
    async for message in socket:
        if codec.read(message):
            await socket.send(pack(type="Step", buffered_pcm=0))
            heard += 1
        if heard >= frames:
            socket.transport.abort()
            return


@pytest.mark.parametrize(
    ("policy", "ended"), [("none", "connection_closed"), ("once", "connection_closed"), ("always", None)]
)
def test_a_broken_connection_is_made_again_as_far_as_the_policy_goes(policy, ended):
    limits = SessionTimeouts(reconnect=policy)
    with web_server(answer_some) as url:
        _, point = measured(server_context(url, length_s=2.4, limits=limits))
    assert point.sessions_ended_early == ({ended: SESSIONS} if ended else {})
    returns = point.network.reconnects
    assert returns == {"none": 0, "once": SESSIONS}.get(policy, returns)
    if policy == "always":
        assert returns > SESSIONS
        assert "connection_closed, and back" in point.network.end_details
        assert point.frames > 0


def test_a_rejected_session_never_had_a_connection_to_make_again():
    with web_server(hang, process_request=lambda c, r: c.respond(503, "full\n")) as url:
        ends_all(url, "rejected", limits=SessionTimeouts(reconnect="always"))


def test_a_server_that_restarts_is_called_again_and_the_gap_counts_as_silence():
    back_at = []

    def still_down(connection, request):
        down = back_at and time.monotonic() < back_at[0]
        return connection.respond(503, "starting\n") if down else None

    async def dies_once(socket):
        if back_at:
            await answer_all(socket)
        await answer_some(socket, 20)
        back_at.append(time.monotonic() + 1.2)

    with web_server(dies_once, process_request=still_down) as url:
        _, point = measured(server_context(url, length_s=6.0, limits=SessionTimeouts(reconnect="always")))
    assert point.sessions_ended_early == {}
    assert point.network.reconnects == SESSIONS
    assert SESSIONS <= point.empty_frames < point.frames
    assert point.network.end_details["connection_closed, and back"]


class FailingAudio(Noise):
    """Audio of which session 1 fails in its tenth frame, as a bug in the load generator would."""

    def stream(self, index):
        return BrokenStream() if index == 1 else super().stream(index)


class BrokenStream:
    def frame(self, k):
        if k == 10:
            raise KeyError("frame 10")
        return np.zeros(1920, dtype=np.float32)


@pytest.mark.parametrize("until", ["end", "settled"])
def test_a_bug_in_a_session_is_a_failure_of_the_generator_and_paces_the_others_on(until):
    audio = FailingAudio(1920, 0.08)
    with web_server(answer_all) as url:
        trial, point = measured(server_context(url, length_s=2.5, audio=audio), until=until)
    assert (point.verdict, point.ended_by) == ("inconclusive", "load_generator")
    assert "KeyError: 'frame 10'" in point.reason
    assert point.network.end_reasons["generator_error"] == 1
    assert trial.load.recorder.total.frames > 20
