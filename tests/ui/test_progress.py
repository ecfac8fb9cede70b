"""How far a run is: a search's time, a point's steps, and what is awaited where nothing is told."""

from dataclasses import replace

import pytest

from metronome_cli.ui.dashboard import DashboardState, dashboard
from metronome_cli.ui.glyphs import ASCII
from metronome_cli.ui.plain import PlainLines, window_line
from tests.ui.demo import snapshot_at
from tests.ui.test_views import Stream, Time


def searched(elapsed_s, budget_s=40.0):
    share = None if budget_s is None else min(1.0, elapsed_s / budget_s)
    return replace(
        snapshot_at(0.5), elapsed_s=elapsed_s, progress=share, eta_s=None, budget_s=budget_s, clock="real"
    )


@pytest.mark.parametrize(("snapshot", "said"), [
    (searched(28.0), "28 s of the 40 s it has"),
    (searched(52.0), "52 s, past the 40 s it had: ends as soon as it has an answer"),
    (searched(200.0, None), "3 min 20 s elapsed"),
])  # fmt: skip
def test_a_search_tells_its_time_and_where_its_point_is(snapshot, said):
    """No percentage of an unknown total: the time limit, and the steps of the current trial."""
    line = window_line(snapshot)
    page = " ".join(
        dashboard(
            DashboardState(phase="confirm", detail="24 sessions", snapshot=snapshot), 120, ASCII
        ).plain.split()
    )
    for shown in (line, page):
        assert said in shown
        assert "step 240 of 480" in shown
        assert "% done" not in shown
    assert ("###" in page.split("sessions")[1]) == (snapshot.progress is not None)


def test_how_far_a_phase_is_is_not_said_of_the_next_one():
    view = DashboardState(phase="exceed", detail="26 sessions", snapshot=snapshot_at(0.5))
    assert "step 240" not in dashboard(view, 120, ASCII).plain


def test_plain_lines_say_what_is_awaited_where_nothing_is_told():
    stream, now = Stream(), Time()
    view = PlainLines(stream, now=now)
    view.phase("load", "loading a large model")
    for second in range(1, 31):
        now.s = float(second)
        view.still()
    view.snapshot(snapshot_at(0.5))
    now.s = 45.0
    view.still()
    view.close()
    waits = [line for line in stream.getvalue().splitlines() if "without an update" in line]
    assert waits == [
        "[   10.0 s] load: loading a large model (10 s without an update)",
        "[   20.0 s] load: loading a large model (20 s without an update)",
        "[   30.0 s] load: loading a large model (30 s without an update)",
        "[   45.0 s] confirm: 24 sessions, step 240 of 480 (15 s without an update)",
    ]


def test_long_limits_are_read_in_hours():
    slow = replace(snapshot_at(0.5), deadline_ms=3_600_000.0)
    assert "ms of 1 h" in window_line(slow)
    assert "ms of 1 h" in dashboard(DashboardState(snapshot=slow), 80, ASCII).plain
