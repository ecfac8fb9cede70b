"""What `probe latency` says of itself beforehand, against what it then does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metronome_cli.cli.main import run
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile_files import load_profile
from metronome_cli.probe.latency_dry_run import outline_probe
from metronome_cli.probe.latency_grid import LatencyGrid
from metronome_cli.probe.latency_report import LatencyProbePlan, run_probe

SMOKE = load_profile("smoke")


def probe(
    batches: tuple[int, ...] = (1, 2), ages_s: tuple[float, ...] = (1.0, 5.0), **more: object
) -> LatencyProbePlan:
    grid = LatencyGrid(SMOKE, (CachePolicySpec("unbounded"),), batches, ages_s, steps=4, rounds=2, **more)  # type: ignore[arg-type]
    return LatencyProbePlan(grid)


def test_the_points_are_those_that_are_then_timed() -> None:
    asked = probe()
    ahead = outline_probe(asked)
    report = run_probe(asked)
    assert report.probe is not None
    timed = [cell for cell in report.probe.cells if cell.median_ms is not None]
    assert ahead.points == len(timed) == 4
    assert not ahead.skipped


def test_points_that_would_be_skipped_are_named_with_the_reason() -> None:
    ahead = outline_probe(probe(ages_s=(1.0, 36_000.0)))
    assert ahead.points == 2
    assert [text.split(":")[0] for text in ahead.skipped] == [
        "unbounded, 1 session 10 h old", "unbounded, 2 sessions 10 h old",
    ]  # fmt: skip
    assert all("beyond the model's context" in text for text in ahead.skipped)


def test_more_sessions_and_older_ones_take_more_memory() -> None:
    small, wide, old = (
        outline_probe(probe(batches=batches, ages_s=ages_s)).pools
        for batches, ages_s in (((1,), (1.0,)), ((4,), (1.0,)), ((1,), (10.0,)))
    )
    assert wide == 4 * small
    assert old > small


def test_nothing_to_time_takes_no_time() -> None:
    ahead = outline_probe(probe(ages_s=(36_000.0,)))
    assert (ahead.points, ahead.most_s, ahead.pools) == (0, 0.0, 0)
    assert "no point would be timed" in ahead.as_text()


def test_the_budget_and_the_first_round_bound_the_duration() -> None:
    one = outline_probe(probe(batches=(1,), budget_s=1.0)).most_s
    many = outline_probe(probe(batches=tuple(range(1, 9)), budget_s=1.0)).most_s
    patient = outline_probe(probe(batches=(1,), budget_s=100.0)).most_s
    assert one < many < patient


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_from_the_command_line(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["probe", "--profile", "smoke", "--output", str(tmp_path / "out"), "--dry-run", *flags]) == 0
    text = capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    if flags:
        assert json.loads(text)["schema"] == "metronome.probe-plan/1"
    else:
        assert text.rstrip().endswith("Dry run: no model was loaded and nothing was measured.")
