"""A load that was given to a server is given to another one, or to the engine in this process."""

import json

import numpy as np
import pytest
import soundfile

from metronome_cli.backends.websocket import backend as websocket
from metronome_cli.backends.websocket.backend import WebsocketSetup
from metronome_cli.backends.websocket.socket_host import SocketHost
from metronome_cli.capacity.capacity_run import run_capacity
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.commands.capacity_on_server import run_on_server
from metronome_cli.core.errors import UsageError
from metronome_cli.load.trace_file import read_load
from tests.capacity.builders import builder_of, small_profile
from tests.capacity.servers import QUICK, answer_all, web_server

PROFILE = small_profile(frame={"period": "80ms", "sample_rate": 24000})


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech")
    rng = np.random.default_rng(0)
    soundfile.write(folder / "talk.wav", 0.1 * rng.standard_normal(24_000 * 25), 24_000)
    return folder


def over_the_network(speech, url, **plan):
    plan = CapacityPlan(profile=PROFILE, audio=(speech,), **plan)
    return run_on_server(plan, WebsocketSetup(url, "moshi-server", limits=QUICK, environ={}))


def in_process(speech, **plan):
    plan = CapacityPlan(profile=PROFILE, audio=(speech,), clock="virtual", **plan)
    return run_capacity(plan, build=builder_of(lambda n: 0.002))


def body(path):
    return path.read_bytes().split(b"\n", 1)[1]


def test_a_server_gets_what_another_one_got(speech, tmp_path):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    with web_server(answer_all) as url:
        over_the_network(speech, url, sessions=2, session_length_s=2.0, record=first)
    with web_server(answer_all) as url:
        report = over_the_network(speech, url, replay=first, record=second)
    assert [one.sessions for one in read_load(first).runs] == [one.sessions for one in read_load(second).runs]
    assert report.capacity.session_length_s == 2.0
    assert report.capacity.trials[0].sessions == 2
    assert report.capacity.trials[0].frames > 10


def test_the_engine_in_process_gets_what_a_server_got(speech, tmp_path):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    with web_server(answer_all) as url:
        over_the_network(speech, url, sessions=2, session_length_s=2.0, record=first)
    report = in_process(speech, replay=first, record=second)
    assert [one.sessions for one in read_load(first).runs] == [one.sessions for one in read_load(second).runs]
    head, again = (json.loads(path.read_bytes().splitlines()[0]) for path in (first, second))
    assert head["loop_samples"] == again["loop_samples"]
    assert report.capacity.trials[0].frames > 10


def test_a_server_gets_what_the_engine_in_process_got(speech, tmp_path):
    kept, again = tmp_path / "kept.jsonl", tmp_path / "again.jsonl"
    in_process(speech, sessions=2, session_length_s=2.0, soak=True, record=kept)
    with web_server(answer_all) as url:
        over_the_network(speech, url, replay=kept, record=again)
    assert [one.sessions for one in read_load(kept).runs] == [one.sessions for one in read_load(again).runs]


@pytest.mark.parametrize(
    ("plan", "said"),
    [({}, "are not new"), ({"soak": True, "batching": "periodic"}, "batches by itself")],
)
def test_sessions_that_a_server_cannot_have_are_refused(speech, tmp_path, plan, said):
    kept = tmp_path / "kept.jsonl"
    in_process(speech, sessions=2, session_length_s=30.0, record=kept, **plan)
    with web_server(answer_all) as url, pytest.raises(UsageError, match=said):
        over_the_network(speech, url, replay=kept)


def test_each_run_of_a_file_has_its_own_sessions_on_the_line(speech, tmp_path, monkeypatch):
    one, two, both = (tmp_path / name for name in ("one.jsonl", "two.jsonl", "both.jsonl"))
    in_process(speech, sessions=1, session_length_s=1.5, soak=True, record=one)
    in_process(speech, sessions=2, session_length_s=1.5, soak=True, record=two)
    lines = [json.loads(line) for line in two.read_bytes().splitlines()[1:]]
    for line in lines:
        line.update({key: 1 for key in ("trial", "trial_end") if key in line})
        if "session" in line:
            line["loop_offset"] = 24_000 * (1 + line["session"])
    both.write_bytes(one.read_bytes() + b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    dealt = []

    def host_of(setup):
        dealt.append(setup.audio)
        return SocketHost(setup)

    monkeypatch.setattr(websocket, "SocketHost", host_of)
    with web_server(answer_all) as url:
        report = over_the_network(speech, url, replay=both)
    assert [point.sessions for point in report.capacity.trials] == [1, 2]
    runs = read_load(both).runs
    assert [
        [streams.start(i) for i in range(len(run.sessions))] for streams, run in zip(dealt, runs, strict=True)
    ] == [[session.loop_offset for session in run.sessions] for run in runs]
