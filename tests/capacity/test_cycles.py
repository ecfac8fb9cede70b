"""Cycles on a server whose metrics are known: a leak is found, and none where there is none."""

import pytest

from metronome_cli.backends.websocket.endpoint import SessionTimeouts
from metronome_cli.capacity.cycles import in_words, run_cycles
from tests.capacity.servers import answer_all, server_context, web_server

PATIENT = SessionTimeouts(connect_s=5.0, ready_s=5.0, idle_s=60.0, stall_s=60.0)


def cycles(levels, count=8):
    """`levels`: lowest occupancy after each cycle; the server itself is the same in all."""
    trials = []
    with web_server(answer_all) as url:
        context = server_context(url, length_s=0.4, limits=PATIENT)

        def exact():
            return None if levels is None else levels[len(trials) - 1]

        return run_cycles(context, 2, count, 4.0, exact, trials, sleep=lambda seconds: None)


def test_a_leak_is_shown_with_its_interval():
    found = cycles([0.02, 0.020, 0.031, 0.029, 0.052, 0.047, 0.071, 0.068, 0.090], count=9)
    assert found.leak.estimate == pytest.approx(0.0098, abs=1e-4)
    assert found.leak.low == pytest.approx(0.0045, abs=1e-4)
    assert "a leak" in in_words(found)


def test_no_leak_is_none():
    found = cycles([0.3, 0.020, 0.021, 0.019, 0.020, 0.022, 0.020, 0.019, 0.021], count=9)
    assert found.leak.low < 0 < found.leak.high, "the first cycle, which fills a prefix cache, is left out"
    assert "no leak is shown" in in_words(found)


def test_too_few_cycles_have_no_interval():
    found = cycles([0.02, 0.03, 0.04], count=3)
    assert found.leak.low is None
    assert "the fewest" in in_words(found)


def test_without_metrics_the_sessions_that_could_start_tell():
    found = cycles(None, count=3)
    assert found.by == "sessions"
    assert found.started == [2, 2, 2]
    assert found.occupancy == []
    assert found.leak.estimate == 0.0
