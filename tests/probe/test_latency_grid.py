"""The latency probe on a simulated target: every point is measured, in turns, and the answer follows the costs."""

from __future__ import annotations

from typing import Any

import pytest

from metronome_cli.backends.simulated_engine import SimulatedEngine
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.stop import StopRequest
from metronome_cli.probe.latency_grid import LatencyGrid, LatencyProbe
from metronome_cli.probe.latency_report import probe_part, summarize_latency
from metronome_cli.results.events import ObserverGroup, Snapshot
from tests.capacity.builders import Noise, small_profile

WINDOW, UNBOUNDED = CachePolicySpec.parse("window(64, 16)"), CachePolicySpec.parse("unbounded")


class Watcher(ObserverGroup):
    """Keeps what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshots: list[Snapshot] = []

    def snapshot(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)


class Machine:
    """Targets whose step takes 1 ms and 2 us for each token held, on a clock of its own; `spell` slows it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spell: float = 1.0) -> None:
        self.now_s = 0.0
        self.order: list[int] = []
        self._spell = spell
        monkeypatch.setattr("metronome_cli.probe.latency_grid.time.perf_counter", lambda: self.now_s)

    def target(self, profile: Any, slots: int) -> SimulatedEngine:
        made = SimulatedEngine(profile, slots, lambda count: 0.001)
        step = made.step

        def timed(frames: Any) -> Any:
            held = sum(made._tokens.values())
            resident = profile.policy_spec.resident_tokens(round(held))
            self.order.append(resident)
            slow = self._spell if 40 < len(self.order) < 90 else 1.0
            self.now_s += slow * (0.001 + 2e-6 * min(held, len(frames) * resident))
            return step(frames)

        made.step = timed  # type: ignore[method-assign]
        return made


def probe(machine: Machine, watcher: ObserverGroup | None = None, **changes: Any) -> LatencyProbe:
    profile = small_profile(blocks=20_000)
    given = {"batches": (1, 4), "ages_s": (60.0, 600.0), "steps": 15, **changes}
    plan = LatencyGrid(profile, (WINDOW, UNBOUNDED), **given)
    streams = Noise(profile.frame.samples, profile.frame.period_s)
    return LatencyProbe(plan, machine.target, streams, watcher or ObserverGroup(), StopRequest())


@pytest.mark.parametrize("spell", [1.0, 8.0])
def test_a_window_reads_flat_and_unbounded_does_not(monkeypatch: pytest.MonkeyPatch, spell: float) -> None:
    """Also where the machine is eight times slower for a while."""
    made = probe(Machine(monkeypatch, spell))
    found = {str(one.policy): one.slope for one in made.run()}
    window, unbounded = found[str(WINDOW)], found[str(UNBOUNDED)]
    assert window is not None
    assert unbounded is not None
    assert window.flat is True
    assert unbounded.flat is False
    assert all(len(point.step_s) >= 6 for point in made.points)
    part = probe_part(made.plan, made.points, made.surfaces(), None)
    assert [cost.age_independent for cost in part.policies] == [True, False]


def test_the_answer_says_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = probe(Machine(monkeypatch))
    made.run()
    part = probe_part(made.plan, made.points, made.surfaces(), None)
    said = summarize_latency(made.plan, part)
    assert "window(64, 16): flat in age (x1.00, 1.00 to 1.00); at 10 min a step fits 80 ms with" in said
    assert "unbounded: grows with age" in said
    assert "busy" not in said
    for cell in part.cells:
        cell.median_relative_error = 0.3
    assert summarize_latency(made.plan, part).endswith(
        "Medians are unsure by 30 %: the machine was busy, and a quiet one is faster."
    )


def test_ages_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    probe(machine, batches=(2,)).run()
    unbounded = machine.order[14:28]  # the second group's first visit
    assert len(set(unbounded[::2])) == len(unbounded[::2])
    assert all(old > young for young, old in zip(unbounded[::2], unbounded[1::2], strict=True))


def test_a_slow_machine_ends_in_time_and_every_point_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    made = probe(machine, budget_s=0.0)
    made.run()
    assert {len(point.step_s) for point in made.points} == {5}


def test_progress_rises_and_counts_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Watcher()
    probe(Machine(monkeypatch), watcher).run()
    shares = [snapshot.progress or 0.0 for snapshot in watcher.snapshots]
    assert shares == sorted(shares)
    assert all(0 <= share < 1 for share in shares)
    assert watcher.snapshots[0].detail == "visit 1 of 12: window(64, 16), 1 session, 60 s and 10 min old"
    assert not any(snapshot.has_sessions for snapshot in watcher.snapshots)


def test_what_does_not_fit_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    made = probe(Machine(monkeypatch), memory_bound=2**18)
    made.run()
    skipped = [point for point in made.points if point.skipped]
    assert {str(point.policy) for point in skipped} == {"unbounded"}
    assert all("more than the bound" in str(point.skipped) and not point.step_s for point in skipped)


def test_a_stop_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    made = probe(Machine(monkeypatch))
    made.stop.request(2)
    assert all(one.slope is None for one in made.run())
