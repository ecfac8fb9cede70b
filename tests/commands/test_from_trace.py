"""`predict` from a recording: our own files and foreign ones, fitted on the early part."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from metronome_cli.commands.predict.from_trace import TracePlan, predict_trace
from metronome_cli.commands.predict.trace_files import read_recording
from metronome_cli.core.errors import UsageError
from metronome_cli.report.report_file import report_json
from metronome_cli.results.capacity_result import Capacity, TrialResult
from metronome_cli.results.forecast_result import Forecast
from metronome_cli.results.measured import Window
from metronome_cli.results.run_report import Report

SLOPE = [(float(t), min(1.0, 0.01 * t)) for t in range(1, 121)]  # full at 100 s


def forecast_of(path: Path, **keys: Any) -> Forecast:
    forecast = predict_trace(TracePlan(path, **keys)).forecast
    assert forecast is not None
    return forecast


def write_csv(path: Path, rows: list[tuple[Any, ...]], header: str = "t_s,occupancy") -> Path:
    lines = [header] if header else []
    path.write_text("\n".join(lines + [",".join(map(str, row)) for row in rows]) + "\n")
    return path


def timeline(served: float = 1.0, sessions: int = 10) -> list[Window]:
    return [
        Window(t_s=t, occupancy=level, sessions=sessions, frames=round(sessions * served))
        for t, level in SLOPE
    ]


def report_file(path: Path, points: list[TrialResult]) -> Path:
    report = Report(
        command="capacity", status="complete", verdict="fail", exit_code=3, started_at=datetime.now(UTC),
        duration_s=1.0, argv=[], version="0", profile={"frame": {"period": 1.0}},
        capacity=Capacity(session_length_s=300.0, method="single", trials=points),
    )  # fmt: skip
    path.write_text(report_json(report))
    return path


def formats(tmp_path: Path) -> list[Path]:
    pairs = tmp_path / "pairs.json"
    pairs.write_text(json.dumps(SLOPE))
    objects = tmp_path / "objects.jsonl"
    objects.write_text(
        "\n".join(json.dumps({"time": t, "kv_cache_usage": level, "x": 1}) for t, level in SLOPE)
    )
    nested = tmp_path / "nested.json"
    nested.write_text(json.dumps({"samples": [{"t": t, "rho": level} for t, level in SLOPE]}))
    stamps = [(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=t)).isoformat() for t, _ in SLOPE]
    return [
        write_csv(tmp_path / "plain.csv", SLOPE),
        write_csv(tmp_path / "bare.csv", SLOPE, header=""),
        write_csv(tmp_path / "percent.csv", [(t, 100 * v) for t, v in SLOPE], header="time,occupancy_percent"),
        write_csv(tmp_path / "sign.csv", [(t, f"{100 * v}%") for t, v in SLOPE]),
        write_csv(tmp_path / "ms.csv", [(1000 * t, v) for t, v in SLOPE], header="t_ms,usage"),
        write_csv(tmp_path / "iso.csv", [(s, v) for s, (_, v) in zip(stamps, SLOPE, strict=True)], "timestamp,usage"),
        pairs, objects, nested,
        report_file(tmp_path / "report.json", [TrialResult(sessions=10, verdict="fail", windows=timeline())]),
    ]  # fmt: skip


def test_every_format_forecasts_the_same(tmp_path: Path) -> None:
    for path in formats(tmp_path):
        forecast = forecast_of(path)
        assert forecast.fill_time_s.estimate is not None, path.name
        assert forecast.observed_fill_time_s is not None, path.name
        off = forecast.fill_time_s.estimate - forecast.observed_fill_time_s
        assert abs(off) <= 0.6, path.name  # full counts from 99.5 %
        assert forecast.fitted_until_s is not None
        assert forecast.fitted_until_s < 0.32 * forecast.observed_fill_time_s, path.name


def events_file(path: Path, points: list[TrialResult], cut_off: Sequence[Window] = ()) -> Path:
    """The events of a run that was killed: its ramp, its points, and windows of one that was not judged."""
    conditions = {
        "command": "capacity", "argv": [], "version": "0", "started_at": "2026-07-02T12:00:00Z",
        "profile": {"frame": {"period": 1.0}, "session_length": 300.0}, "settings": {},
    }  # fmt: skip
    told: list[tuple[str, dict[str, Any]]] = [
        ("run_started", conditions),
        ("phase", {"name": "ramp", "detail": ""}),
    ]
    told += [("window", {"phase": "ramp", **window.model_dump()}) for window in timeline()[:20]]
    told += [("trial", point.model_dump(mode="json")) for point in points]
    told += [("phase", {"name": "next", "detail": ""})] if cut_off else []
    told += [("window", {"phase": "next", **window.model_dump()}) for window in cut_off]
    lines: list[dict[str, Any]] = [{"schema": "metronome.events/2"}]
    lines += [{"t": 1.0, "kind": kind, "data": data} for kind, data in told]
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"t": 3, "kind": "win')  # killed in mid-line
    return path


def searched() -> list[TrialResult]:
    """A look that failed with a full pool, a number that failed, the one that was confirmed, and its check."""
    half = [window.model_copy(update={"occupancy": (window.occupancy or 0) / 2}) for window in timeline()]
    return [
        TrialResult(sessions=20, purpose="screen", verdict="fail", windows=timeline()),
        TrialResult(sessions=16, purpose="confirm", verdict="fail", windows=timeline()[:90]),
        TrialResult(sessions=14, purpose="confirm", verdict="pass", windows=half),
        TrialResult(sessions=14, purpose="memory", verdict="pass", windows=timeline()[:80]),
        TrialResult(sessions=15, purpose="next", verdict="fail", windows=timeline()[:95]),
    ]


@pytest.mark.parametrize("make", [report_file, events_file])
def test_of_a_search_the_confirmed_number_counts_and_another_can_be_named(
    tmp_path: Path, make: Callable[[Path, list[TrialResult]], Path]
) -> None:
    path = make(tmp_path / ("report.json" if make is report_file else "events.jsonl"), searched())
    assert read_recording(path).name == "14 sessions, confirm, pass"
    report = predict_trace(TracePlan(path))
    runs = 5 if make is report_file else 6
    assert report.summary.endswith(f" Read: 14 sessions, confirm, pass, of {runs} runs in it (--trial).")
    assert report.forecast is not None
    assert report.forecast.assumptions[0] == "run: 14 sessions, confirm, pass"
    assert "'20 sessions, screen, fail'" in report.forecast.assumptions[1]
    assert read_recording(path, run="20").name == "20 sessions, screen, fail"
    assert read_recording(path, run="MEMORY").name == "14 sessions, memory, pass"
    assert read_recording(path, run="fail").name == "15 sessions, next, fail"
    with pytest.raises(UsageError, match="called 'none'") as refused:
        read_recording(path, run="none")
    assert "'15 sessions, next, fail'" in str(refused.value.hint)


def test_where_none_was_confirmed_the_smallest_that_failed_counts(tmp_path: Path) -> None:
    path = report_file(tmp_path / "report.json", searched()[:2])
    assert read_recording(path).name == "16 sessions, confirm, fail"
    assert read_recording(report_file(path, searched()[:1])).name == "20 sessions, screen, fail"


def test_a_judged_point_with_too_few_samples_gives_way_to_another_and_not_to_a_look(tmp_path: Path) -> None:
    short = TrialResult(sessions=14, purpose="confirm", verdict="pass", windows=timeline()[:5])
    path = report_file(tmp_path / "report.json", [*searched()[:2], short])
    assert read_recording(path).name == "16 sessions, confirm, fail"
    path = report_file(tmp_path / "report.json", [searched()[0], short])
    assert read_recording(path).name == "14 sessions, confirm, pass"


def test_a_point_that_was_cut_off_can_be_read(tmp_path: Path) -> None:
    path = events_file(tmp_path / "events.jsonl", [], cut_off=timeline())
    assert read_recording(path).name == "10 sessions, next, inconclusive"
    assert forecast_of(path).observed_fill_time_s == 100.0


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    twice = [
        TrialResult(sessions=9, purpose="trial", verdict="pass", windows=timeline()[:n]) for n in (50, 60)
    ]
    path = report_file(tmp_path / "report.json", twice)
    assert read_recording(path).others == ("9 sessions, trial, pass",)
    assert read_recording(path, run="9 sessions, trial, pass (2)").trace.t_s[-1] == 60


def test_frames_that_were_not_served_are_said(tmp_path: Path) -> None:
    path = report_file(
        tmp_path / "report.json", [TrialResult(sessions=10, verdict="fail", windows=timeline(served=0.8))]
    )
    report = predict_trace(TracePlan(path))
    assert report.forecast is not None
    assert report.forecast.served_share == pytest.approx(0.8, abs=0.02)
    assert "Only 80 % of the frames offered were served" in report.summary


def test_no_more_is_served_than_was_offered(tmp_path: Path) -> None:
    point = TrialResult(sessions=10, verdict="fail", windows=timeline(served=1.1))
    assert forecast_of(report_file(tmp_path / "report.json", [point])).served_share == 1.0


def test_a_pool_that_is_full_in_what_is_fitted_leaves_nothing_to_forecast(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", SLOPE)
    answer = predict_trace(TracePlan(path, fit_until_s=110.0)).summary
    assert answer == "The pool is full at 100 s, in the part to be fitted, so nothing is left to forecast."


def test_a_flat_trace_does_not_saturate(tmp_path: Path) -> None:
    report = predict_trace(TracePlan(write_csv(tmp_path / "t.csv", [(t, 0.4) for t in range(100)])))
    assert report.summary.startswith("Does not saturate")
    assert report.forecast is not None
    assert report.forecast.fill_time_s.estimate is None


@pytest.mark.parametrize(("within_s", "code"), [(20.0, 0), (1000.0, 3)])
def test_fail_within_decides_the_exit_code(tmp_path: Path, within_s: float, code: int) -> None:
    path = write_csv(tmp_path / "t.csv", SLOPE[:60])
    assert predict_trace(TracePlan(path, fail_within_s=within_s)).exit_code == code


def test_too_few_samples_are_inconclusive(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", SLOPE[:5])
    assert predict_trace(TracePlan(path, fail_within_s=10.0)).exit_code == 4


def test_how_much_is_fitted_can_be_told(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", SLOPE)
    assert forecast_of(path, fit_until_s=50.0).fitted_until_s == 50.0
    assert forecast_of(path, fit_share=0.5).fitted_until_s == pytest.approx(50, abs=1)
    with pytest.raises(UsageError, match="contradict"):
        forecast_of(path, fit_until_s=50.0, fit_share=0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "no column of time"), ("t_s,b\n1,2\n", "no column of occupancy"), ("", "no samples"),
        ("t_s,occupancy\nsoon,0.1\n", "'soon' is no time"), ("t_s,occupancy\n2,0.1\n1,0.2\n", "time goes back"),
        ("t_s,occupancy\n,0.1\n", "no finite time"), ("t_s,occupancy\n1,40\n", "outside 0..1"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        forecast_of(path)


def test_missing_files_and_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nope\.csv"):
        forecast_of(tmp_path / "nope.csv")
    with pytest.raises(UsageError, match=r"neither report\.json"):
        forecast_of(tmp_path)
    with pytest.raises(UsageError, match="no column 'z'"):
        forecast_of(write_csv(tmp_path / "t.csv", SLOPE), time_column="z")


def test_an_instant_of_the_first_rise_is_forecast_from_the_first_rise(tmp_path: Path) -> None:
    """Filled at 0.004 per second until 250 s, emptied, and filled again at half that rate."""
    first = [(t, min(1.0, 0.004 * t)) for t in range(260)]
    second = [(t, 0.002 * (t - 260)) for t in range(260, 400)]
    path = write_csv(tmp_path / "twice.csv", [*first, *second])
    found = forecast_of(path, fit_until_s=100.0)
    assert found.fill_time_s is not None
    assert found.fill_time_s.estimate == pytest.approx(250.0, rel=0.02)
    assert found.observed_fill_time_s == pytest.approx(249.0, abs=2.0)
    later = forecast_of(path, fit_until_s=380.0)
    assert later.fill_time_s is not None
    assert later.fill_time_s.estimate == pytest.approx(760.0, rel=0.05)
