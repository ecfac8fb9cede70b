"""The wall clock may jump as it likes: it stamps, and measures nothing."""

import ast
import random
import time
from pathlib import Path

import pytest

import metronome_cli
from metronome_cli.capacity.capacity_run import run_capacity
from metronome_cli.capacity.plan import CapacityPlan
from tests.capacity.builders import ObserverLog, builder_of, small_profile

SOURCES = sorted(Path(metronome_cli.__file__).parent.rglob("*.py"))
READS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
}
STAMPS = {  # where the wall clock may be read, and for what
    "report/event_log.py": "when a file was opened",
    "capacity/capacity_run.py": "when a run started",
    "results/report_draft.py": "when a run started",
    "results/probe_draft.py": "when a run started",
    "server/metrics_page.py": "when a server started",
    "commands/predict/from_metrics.py": "when the pool of a server will be full, for people",
    "capacity/windows.py": "when a first frame that is far away will be due, for people",
}


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_clock_that_steps_back_and_forth_changes_no_duration(monkeypatch, clock):
    rng, honest = random.Random(0), time.time
    monkeypatch.setattr(time, "time", lambda: honest() + rng.uniform(-1e6, 1e6))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    watcher = ObserverLog()
    plan = CapacityPlan(small_profile(), clock=clock, sessions=3, session_length_s=4.0, soak=True)
    report = run_capacity(plan, watcher, build=builder_of(lambda batch: 0.004))
    point = report.capacity.trials[0]
    assert point.duration_s == pytest.approx(4.0, abs=0.5)
    assert point.frames == pytest.approx(3 * (4.0 - 12 * 0.08) / 0.08, abs=3 * 14)
    assert 0 <= report.duration_s < 600
    assert all(0 <= snapshot.elapsed_s < 600 for snapshot in watcher.snapshots)
    times = [window.t_s for window in point.windows]
    assert times == sorted(times)


def test_only_stamps_read_the_wall_clock():
    package = Path(metronome_cli.__file__).parent
    readers = {source.relative_to(package).as_posix() for source in SOURCES if reads_wall_clock(source)}
    assert readers == set(STAMPS)


def reads_wall_clock(source):
    """Whether a module reads it by one of its usual names."""
    nodes = list(ast.walk(ast.parse(source.read_text())))
    calls = {
        (node.value.id, node.attr)
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    imported = {
        (node.module, name.name) for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names
    }
    return bool((calls | imported) & READS)
