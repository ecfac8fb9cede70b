"""Sessions in worker processes: counted as if they were here, and a worker's end is no server's fault."""

import functools
import multiprocessing
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest

from metronome_cli.backends.interface import BackendStats, NetworkState
from metronome_cli.backends.websocket.backend import TRAITS
from metronome_cli.backends.websocket.endpoint import SessionTimeouts, endpoint
from metronome_cli.backends.websocket.process_workers import start_workers
from metronome_cli.capacity import outcome
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.measure.recorder import Recorder
from metronome_cli.protocols.registry import PROTOCOLS
from metronome_cli.results.load_generator import generator_of
from tests.capacity.servers import answer_all, bounded, server_context, web_server

SESSIONS = 4


def workers_starter(count):
    return functools.partial(start_workers, count=count)


def measured(context, during=lambda trial: None):
    """A trial of workers, after checking that none is left."""
    plan = TrialPlan(SESSIONS, "single", ages="start", length_s=context.session_length_s, until="end")
    trial = Trial(context, plan)
    threading.Thread(target=during, args=(trial,), daemon=True).start()
    point = bounded(lambda: trial.run(into=[]).result, 60.0)
    assert multiprocessing.active_children() == []
    assert len(trial.load) == 0
    return trial, point


def context_of(url, workers, **options):
    return server_context(url, limits=SessionTimeouts(), starter=workers_starter(workers), **options)


class Tone:
    """The same for all sessions, and quick to make; `burn_s`: how long it takes the generator to come up with a
    frame."""

    def __init__(self, burn_s=0.0):
        self._burn_s = burn_s

    def stream(self, index):
        return self

    def phase_s(self, index):
        return index * 0.6180339887 % 1.0 * 0.08

    def frame(self, k):
        until = time.perf_counter() + self._burn_s
        while time.perf_counter() < until:
            pass
        return np.zeros(1920, dtype=np.float32)


def test_steps_hold_the_frames_of_all_workers():
    with web_server(answer_all) as url:
        run, point = measured(context_of(url, 2, length_s=3.0, audio=Tone()))
    assert point.sessions_ended_early == {}
    assert point.network.end_reasons["completed"] == SESSIONS
    assert point.network.sessions_started == SESSIONS
    assert point.frames / point.batches == pytest.approx(SESSIONS, abs=0.5)
    assert [host.cpu_share is not None for host in run.load.run.hosts] == [True, True]


def test_a_killed_worker_ends_the_point_and_is_named():
    def kill(run):
        until = time.perf_counter() + 30
        while run.load.recorder.total.batches < 5 and time.perf_counter() < until:
            time.sleep(0.02)
        victim = next(p for p in multiprocessing.active_children() if p.name == "worker 2 of 2")
        os.kill(victim.pid, signal.SIGKILL)

    with web_server(answer_all) as url:
        began = time.perf_counter()
        _, point = measured(context_of(url, 2, length_s=300.0, audio=Tone()), during=kill)
    assert time.perf_counter() - began < 60
    assert point.verdict == "inconclusive"
    assert "worker 2 of 2 was killed by SIGKILL" in point.reason
    assert (point.ended_by, point.limited_by) == ("load_generator", "load_generator")
    assert point.network.end_reasons["shed"] == SESSIONS // 2
    assert point.frames > 0


def test_a_worker_too_slow_for_its_share_makes_the_point_inconclusive(monkeypatch):
    monkeypatch.setattr(outcome, "BUSY_SHARE", 0.05)  # of a core: it gets less of a crowded machine
    with web_server(answer_all) as url:
        _, point = measured(context_of(url, 1, length_s=4.0, audio=Tone(burn_s=0.03)))
    assert point.verdict == "inconclusive"
    assert point.ended_by == "load_generator"
    assert "load generator was late" in point.reason
    assert "--workers" in point.reason
    health = generator_of([point])
    assert health.on_time is False
    assert (health.workers, health.send_lateness_ms_p999) == (1, point.network.send_lateness_ms.p999)
    assert health.late_send_share > 0.01
    assert health.busiest_process_cpu_share > 0.1


def test_workers_end_when_no_process_is_left_to_ask():
    with web_server(answer_all) as url:
        context = context_of(url, 1, audio=Tone())
        with context.open_load(1) as load:
            (process,) = multiprocessing.active_children()
            load.open()
            load.begin()
            (host,) = load.run.hosts
            host.channel._pipe.close()
            process.join(30)
            assert process.exitcode == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_worker_can_be_told_of_any_endpoint(protocol):
    found = endpoint(
        "ws://127.0.0.1:1", protocol, SessionTimeouts(idle_s=3.0), {"METRONOME_API_KEY": "k"}, "m"
    )
    told = pickle.loads(pickle.dumps(found))
    assert (told.url, told.headers, told.limits, told.traits) == (
        found.url,
        found.headers,
        found.limits,
        found.traits,
    )
    assert told.codec().opening() == found.codec().opening()


@pytest.mark.parametrize(
    ("share", "helps"), [(0.07, "other processes use the machine"), (0.9, "use more --workers")]
)
def test_a_late_generator_says_what_helps(share, helps):
    recorder = Recorder(80.0)
    recorder.stalled_s = 1.0
    network = NetworkState(steady=True, idle_timeout_s=10.0, cpu_share=share)
    seen = outcome.Seen(TrialPlan(1, "single"), TRAITS, recorder, BackendStats(network=network), (), 0.99)
    assert seen.late.endswith(helps)
