"""`predict` from a recording: our own files and foreign ones, fitted on the early part."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from metronome_cli.errors import UsageError
from metronome_cli.report.capacity import Capacity, Point
from metronome_cli.report.forecast import Forecast
from metronome_cli.report.measured import TimelinePoint
from metronome_cli.report.model import Report
from metronome_cli.report.write import report_json
from metronome_cli.run.predict_trace import TracePlan, predict_trace
from metronome_cli.run.traces import read_recording

SLOPE = [(float(t), min(1.0, 0.01 * t)) for t in range(1, 121)]  # full at 100 s


def forecast_of(path: Path, **keys: Any) -> Forecast:
    forecast = predict_trace(TracePlan(path, **keys)).forecast
    assert forecast is not None
    return forecast


def write_csv(path: Path, rows: list[tuple[Any, ...]], header: str = "t_s,occupancy") -> Path:
    lines = [header] if header else []
    path.write_text("\n".join(lines + [",".join(map(str, row)) for row in rows]) + "\n")
    return path


def timeline(served: float = 1.0, sessions: int = 10) -> list[TimelinePoint]:
    return [
        TimelinePoint(t_s=t, occupancy=level, sessions=sessions, frames=round(sessions * served))
        for t, level in SLOPE
    ]


def report_file(path: Path, points: list[Point]) -> Path:
    report = Report(
        command="capacity", status="complete", verdict="fail", exit_code=3, started_at=datetime.now(UTC),
        duration_s=1.0, argv=[], version="0", profile={"frame": {"period": 1.0}},
        capacity=Capacity(session_length_s=300.0, method="single", points=points),
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
        report_file(tmp_path / "report.json", [Point(sessions=10, verdict="fail", timeline=timeline())]),
    ]  # fmt: skip


def test_every_format_foretells_the_same(tmp_path: Path) -> None:
    for path in formats(tmp_path):
        forecast = forecast_of(path)
        assert forecast.t_sat_s.estimate is not None, path.name
        assert forecast.observed_t_sat_s is not None, path.name
        off = forecast.t_sat_s.estimate - forecast.observed_t_sat_s
        assert abs(off) <= 0.6, path.name  # full counts from 99.5 %
        assert forecast.fitted_until_s is not None
        assert forecast.fitted_until_s < 0.32 * forecast.observed_t_sat_s, path.name


def test_events_are_split_into_runs_and_the_fullest_counts(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"schema": "metronome.events/1"}]
    lines.append({"t": 0, "kind": "run", "data": {"profile": {"frame": {"period": 1.0}}}})
    for scale, phase in ((0.3, "ramp"), (1.0, "single")):
        for point in timeline():
            data = point.model_dump() | {"phase": phase, "occupancy": scale * (point.occupancy or 0)}
            lines.append({"t": 1, "kind": "window", "data": data})
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"t": 3, "kind": "win')  # killed in mid-line
    assert "single" in read_recording(path).name
    assert forecast_of(path).observed_t_sat_s == 100.0
    assert forecast_of(path, run="ramp").observed_t_sat_s is None
    with pytest.raises(UsageError, match="called 'none'"):
        forecast_of(path, run="none")


def test_frames_that_were_not_served_are_said(tmp_path: Path) -> None:
    path = report_file(
        tmp_path / "report.json", [Point(sessions=10, verdict="fail", timeline=timeline(served=0.8))]
    )
    report = predict_trace(TracePlan(path))
    assert report.forecast is not None
    assert report.forecast.served_share == pytest.approx(0.8, abs=0.02)
    assert "Only 80 % of the frames offered were served" in report.answer


def test_a_flat_trace_does_not_saturate(tmp_path: Path) -> None:
    report = predict_trace(TracePlan(write_csv(tmp_path / "t.csv", [(t, 0.4) for t in range(100)])))
    assert report.answer.startswith("Does not saturate")
    assert report.forecast is not None
    assert report.forecast.t_sat_s.estimate is None


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
