"""Latencies against a server whose delays are known: constant, drifting and stepping, for every protocol."""

import asyncio
import time

import numpy as np
import pytest

from metronome_cli.backends.streaming.pacing import Pacing
from metronome_cli.backends.websocket.endpoint import SessionTimeouts, endpoint
from metronome_cli.backends.websocket.idle_call import learn_answers
from metronome_cli.backends.websocket.message_cache import encode_loop
from metronome_cli.backends.websocket.session import HostContext, WebsocketSession
from metronome_cli.backends.websocket.timers import TimerQueue
from metronome_cli.core.session import FrameResult, FrameSent
from tests.servers.truth_server import PEERS, address, seen_delays, truth_server

STEADY = [name for name in PEERS if name != "minicpm"]
FRAMES = 24


class Noise:
    """A recording of a few frames of noise that every session repeats, so that it is encoded once."""

    places = 256

    def __init__(self, samples):
        self._samples = samples

    def stream(self, index):
        return self

    def place(self, k):
        return k % self.places

    def frame(self, k):
        rng = np.random.default_rng(k % self.places)
        return (0.0005 * rng.standard_normal(self._samples)).astype(np.float32)


@pytest.fixture(scope="module")
def port():
    with truth_server() as port:
        yield port


async def call(port, protocol, frames=FRAMES, **delays):
    """One session: its rule, and the latencies that were told, less each frame's own lateness in sending."""
    period_s = PEERS[protocol].period_s
    url = address(port, protocol, **delays)
    found = await learn_answers(endpoint(url, protocol, SessionTimeouts(), {}), period_s)
    zero, told = time.perf_counter(), []

    def now():
        return time.perf_counter() - zero

    audio, rate = Noise(round(period_s * found.traits.sample_rate)), found.traits.sample_rate
    pacing = Pacing(period_s, 10 * period_s, 100)
    loop = encode_loop(audio, rate, period_s, pacing.pieces) if protocol == "moshi" else None
    host = HostContext(found, pacing, now, told.append, TimerQueue(now), loop=loop)
    session = WebsocketSession(0, host, audio, phase_s=0.0, lifetime_s=frames * period_s)
    host.open.set()
    await session.run()
    late_ms = {event.due_s: 1e3 * event.late_s for event in told if isinstance(event, FrameSent)}
    records = [event for event in told if isinstance(event, FrameResult)]
    assert told[-1].reason == "completed"
    return found.answers, [r.latency_ms - late_ms[r.due_s] for r in records]


def agrees(port, told, delay, ms):
    """Within what a busy machine adds, which is far less than a period: 1 to 2 ms on an idle one."""
    seen = seen_delays(port, delay, ms)[: len(told)]
    assert len(told) == len(seen) >= FRAMES - 8  # the last answers may come after the session
    difference = np.abs(np.array(told) - np.array(seen))
    assert np.min(difference) < 10.0  # two busy cores; an error of a period is 80 ms
    assert np.median(difference) < 25.0


DELAYS = [("constant", ms) for ms in (20, 60, 100, 150, 200, 250, 300, 350, 400)]


@pytest.mark.parametrize("protocol", STEADY)
def test_latencies_are_those_of_the_server(port, protocol):
    delays = [*DELAYS, ("drifting", 300), ("stepping", 300)]

    async def calls():
        return await asyncio.gather(*(call(port, protocol, delay=delay, ms=ms) for delay, ms in delays))

    for (delay, ms), (rule, told) in zip(delays, asyncio.run(calls()), strict=True):
        assert rule.hold_back_s == pytest.approx(0.0, abs=1e-6)
        agrees(port, told, delay, ms)


@pytest.mark.parametrize(("protocol", "held"), [("moshi", 2), ("moshi-server", 3)])
def test_what_a_server_holds_back_is_learned_and_hides_no_delay(port, protocol, held):
    rule, told = asyncio.run(call(port, protocol, delay="stepping", ms=200, held=held))
    assert (rule.kind, rule.hold_back_s) == ("counted", pytest.approx(0.08 * held))
    agrees(port, told, "stepping", 200)


def test_a_unit_of_a_second_is_answered_by_listening_or_by_speaking(port):
    rule, told = asyncio.run(call(port, "minicpm", ms=150, frames=4))
    assert (rule.kind, rule.owed) == ("units", "promised")
    assert len(told) == 3
    assert np.median(np.array(told) - np.array(seen_delays(port, ms=150)[:3])) < 10.0
