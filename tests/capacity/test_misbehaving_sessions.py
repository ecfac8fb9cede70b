"""Sessions that misbehave on a server: it sees a reset as one, and the others alone are judged."""

import asyncio
from dataclasses import replace

import pytest
from websockets.exceptions import ConnectionClosed

from metronome_cli.backends.websocket.endpoint import SessionTimeouts
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.load.misbehaving import MisbehavingSessions
from tests.capacity.servers import answer_all, server_context, web_server

PATIENT = SessionTimeouts(connect_s=5.0, ready_s=5.0, idle_s=60.0, stall_s=60.0)


def trial(handle, kinds, sessions=5):
    with web_server(handle) as url:
        context = replace(
            server_context(url, length_s=2.0, limits=PATIENT), misbehaving=MisbehavingSessions.parse(kinds)
        )
        return (
            Trial(context, TrialPlan(sessions, "single", ages="start", length_s=2.0, until="end"))
            .measure()
            .result
        )


@pytest.mark.parametrize("behaviour", ["mute", "dead", "reset", "stall"])
def test_the_others_are_judged_and_only_they(behaviour):
    plain = trial(answer_all, "mute:1%")
    result = trial(answer_all, f"{behaviour}:40%")
    (found,) = result.misbehaved
    assert found.behaviour == behaviour
    assert found.count == 2
    assert found.held_s.max is None, "the server ended none"
    assert not any(result.sessions_ended_early.values())
    assert 0.4 * plain.frames < result.frames < 0.8 * plain.frames


def test_a_server_that_ends_a_mute_session_is_timed():
    async def impatient(socket):
        try:
            async with asyncio.timeout(1.0):
                await answer_all(socket_until_quiet(socket))
        except TimeoutError:
            await socket.close(1001, "idle")

    def socket_until_quiet(socket):
        return socket

    result = trial(impatient, "mute:40%")
    (found,) = result.misbehaved
    assert found.ended_by_server == found.count == 2
    assert found.held_s.p50 == pytest.approx(1.0, abs=0.5)


def test_a_reset_reaches_the_server_as_one():
    seen = []

    async def handle(socket):
        try:
            await answer_all(socket)
        except ConnectionClosed as error:
            seen.append(error)
            raise

    trial(handle, "reset:40%")
    assert any(error.rcvd is None for error in seen), "no closing frame came"
