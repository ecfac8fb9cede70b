"""Scripted calls on a server that answers a known time after each turn: replies, unanswered turns, the report."""

import json
from dataclasses import replace

import numpy as np
import pytest

from metronome_cli.audio.library import AudioLibrary, Clip
from metronome_cli.audio.streams import LoopedSpeech
from metronome_cli.backends.websocket.endpoint import SessionTimeouts
from metronome_cli.capacity.canary import alone_replies
from metronome_cli.capacity.scripted_audio import scripted_loop
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.load.script import ScriptLine
from metronome_cli.measure.objective import Objective
from tests.capacity.servers import server_context, web_server
from tests.servers.turn_server import RATE, TurnServer

PATIENT = SessionTimeouts(connect_s=5.0, ready_s=5.0, idle_s=60.0, stall_s=5.0)
SCRIPT = (ScriptLine("say"), ScriptLine("wait", 2.4))


def scripted(period_s=0.08):
    """Utterances of 2 s with waits of 2.4 s between them."""
    tone = (0.3 * np.sin(np.arange(2 * RATE) / 9)).astype(np.float32)
    clip = np.concatenate([tone, np.zeros(RATE, dtype=np.float32)])
    library = AudioLibrary(RATE, (Clip("tone", clip, 3.0),))
    made, script = scripted_loop(library, SCRIPT, period_s, 1, lambda name: tone)
    return LoopedSpeech(made, period_s, 2), script


def calls_on(server, length_s=11.0, sessions=4, objectives=("unanswered<5%",), delays_s=(0.0,)):
    """The result of one trial of scripted calls."""
    audio, script = scripted()
    with web_server(server) as url:
        context = server_context(url, "realtime", length_s=length_s, audio=audio, limits=PATIENT)
        context = replace(
            context,
            script=script,
            objectives=tuple(map(Objective.parse, objectives)),
            playback_delays_s=delays_s,
        )
        plan = TrialPlan(sessions, "single", ages="start", length_s=length_s, until="end")
        return Trial(context, plan).measure().result


def test_replies_take_as_long_as_the_server_does():
    result = calls_on(TurnServer(reply_s=0.9), objectives=("unanswered<5%", "reply.p95<2s", "broken<1%"))
    turns = result.turns
    assert turns.asked >= 4
    assert turns.answered == turns.asked
    assert turns.reply_ms.p50 == pytest.approx(900, abs=60), "a detector of speech hears in pieces of 80 ms"
    assert turns.talked_over == 0
    assert {one.verdict for one in result.objectives} == {"inconclusive"}, "too few turns to prove 5 %"


def test_turns_that_nothing_answers_fail_the_trial():
    result = calls_on(TurnServer(reply_s=0.6, outcome=lambda turn: "none"), sessions=8, length_s=9.0)
    assert result.turns.answered == 0
    assert result.turns.reply_ms.p50 is None, "what did not come is null, not 0"
    assert result.objectives[0].verdict == "fail"
    assert json.loads(result.model_dump_json())["turns"]["reply_ms"]["p95"] is None


def test_the_canary_tells_what_load_adds():
    """Replies are 300 ms later if anybody else is there."""
    open_calls = []

    class Busy(TurnServer):
        async def __call__(self, socket):
            open_calls.append(socket)
            try:
                await super().__call__(socket)
            finally:
                open_calls.remove(socket)

        async def _answer(self, socket, turn, end_s):
            await super()._answer(socket, turn, end_s + (0.3 if len(open_calls) > 1 else 0.0))

    audio, script = scripted()
    with web_server(Busy(reply_s=0.6)) as url:
        context = replace(
            server_context(url, "realtime", length_s=7.0, audio=audio, limits=PATIENT),
            script=script,
            objectives=(Objective.parse("reply.added<500ms"),),
        )
        context = replace(context, canary=alone_replies(context, 7.0))
        result = (
            Trial(context, TrialPlan(3, "single", ages="start", length_s=7.0, until="end")).measure().result
        )
    assert result.canary.pairs >= 1
    assert result.canary.reply_added_ms.estimate == pytest.approx(300, abs=60)
    assert result.canary.reply_added_ms.low is None, "fewer than 8 pairs have no interval"
    assert result.canary.repeat_added_ms.estimate == pytest.approx(0, abs=60)
    assert result.objectives[0].verdict == "inconclusive"
