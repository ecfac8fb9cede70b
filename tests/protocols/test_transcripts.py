"""What real servers sent, event by event, and what it means. Transcripts lie beside the project, if they are there."""

import json
import pathlib

import pytest

from metronome_cli.protocols import messages as m
from metronome_cli.protocols.registry import client_codec

CASES = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "realtime"
ANSWER_S = 0.04


def events(name, protocol):
    path = CASES / f"{name}.jsonl"
    if not path.exists():
        pytest.skip("no transcripts beside the project")
    codec = client_codec(protocol)()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [event for line in lines if line["from"] == "s" for event in codec.read(json.dumps(line["msg"]))]


def of(kind, found):
    return [event for event in found if isinstance(event, kind)]


@pytest.mark.parametrize("name", ["openai-ga", "openai-beta"])
def test_one_turn_and_its_sound(name):
    found = events(name, "realtime")
    assert len(of(m.Ready, found)) == 1
    assert [(turn.speaking, turn.status) for turn in of(m.ResponseActive, found)] == [
        (True, "completed"),
        (False, "completed"),
    ]
    assert sum(out.seconds for out in of(m.AudioOutput, found)) == pytest.approx(ANSWER_S)
    assert of((m.Named, m.ServerError, m.ProtocolError), found) == []


def test_a_response_that_failed_is_no_turn_that_ended_well():
    found = events("openai-session-limit", "realtime")
    ended = [turn.status for turn in of(m.ResponseActive, found) if not turn.speaking]
    assert ended == ["cancelled", "failed"]
    (rejected,) = of(m.SessionRejected, found)
    assert "insufficient_quota" in rejected.why
    assert [closed.reason for closed in of(m.SessionClosed, found)] == ["expired"]


def test_minicpm_waits_with_a_place_answers_each_unit_and_tells_its_cache():
    found = events("minicpm-o-demo-v2", "minicpm")
    assert [queued.position for queued in of(m.Queued, found)] == [3, 1]
    (reply,) = of(m.Reply, found)
    assert json.loads(reply.messages[0])["type"] == "session.update"
    units = of(m.UnitAnswered, found)
    assert [unit.listening for unit in units] == [True, True, False, False]
    assert [unit.context_tokens for unit in units] == [71, 84, 116, 148]
    assert [out.seconds for out in of(m.AudioOutput, found)] == [pytest.approx(0.1)] * 2
    assert [closed.reason for closed in of(m.SessionClosed, found)] == ["context_limit"]
    assert of((m.Named, m.ProtocolError), found) == []


def test_a_model_that_listens_for_ever_is_alive():
    found = events("vllm-omni-listen-forever", "realtime")
    assert [unit.listening for unit in of(m.UnitAnswered, found)] == [True] * 5
    assert of(m.UserSpeech, found) == [m.UserSpeech(True)]
    assert of((m.ResponseActive, m.AudioOutput, m.SessionClosed, m.ServerError), found) == []


def test_refusals_errors_and_ends_are_told_apart():
    rejected, pressure, expired, idle = events("vllm-omni-refusals", "realtime")
    assert isinstance(rejected, m.SessionRejected)
    assert isinstance(pressure, m.ServerError)
    assert (pressure.code, pressure.fatal) == ("input_backpressure", False)
    assert (expired.reason, idle.reason) == ("expired", "expired")
