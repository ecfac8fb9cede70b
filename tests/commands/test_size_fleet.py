"""`predict` for fleets and cards: where the slots come from, and what contradicts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from metronome_cli.commands.predict.size_fleet import FleetQuery, GpuQuery, predict_cards, predict_fleet
from metronome_cli.core.errors import UsageError
from metronome_cli.report.report_file import report_json
from metronome_cli.results.capacity_result import Capacity, TrialResult
from metronome_cli.results.latency_result import DevicePeaksResult, GridCellResult, ProbeResult
from metronome_cli.results.run_report import Report
from tests.forecast.test_step_time import CURVE, PERSONAPLEX

LOAD: dict[str, Any] = {"arrivals_per_s": 2.5, "mean_call_s": 240.0}


def capacity_report(path: Path, *, device: str = "NVIDIA H200", safe: int | None = 40) -> Path:
    points = [
        TrialResult(
            sessions=n,
            verdict="pass",
            purpose="confirm",
            batches=500,
            stages_ms={"prefill": ms / 2, "decode": ms / 2},
        )
        for n, ms in CURVE[:3]
    ]
    report = Report(
        command="capacity", status="complete", verdict="pass", exit_code=0, started_at=datetime.now(UTC),
        duration_s=1.0, argv=[], version="0", backend={"device": "cuda"},
        environment={"devices": [{"name": device, "memory_bytes": 1}]},
        capacity=Capacity(safe_sessions=safe, session_length_s=300.0, method="ramp", trials=points),
    )  # fmt: skip
    path.write_text(report_json(report))
    return path


def cards(*names: str, **keys: Any) -> GpuQuery:
    return GpuQuery(names, PERSONAPLEX, 600.0, **keys)


def test_the_example_of_the_help() -> None:
    fleet = predict_fleet(FleetQuery(**LOAD, sessions_per_gpu=100)).fleet
    assert fleet is not None
    assert fleet.offered_erlangs == 600
    assert (fleet.gpus_needed, fleet.gpus_with_spare_node) == (7, 8)
    row = next(size for size in fleet.sizes if size.gpus == 6)
    assert row.blocking == pytest.approx(0.0319, abs=1e-4)


@pytest.mark.parametrize(("gpus", "code"), [(6, 3), (7, 0)])
def test_a_fleet_of_a_given_size_is_judged(gpus: int, code: int) -> None:
    report = predict_fleet(FleetQuery(**LOAD, sessions_per_gpu=100, gpus=gpus))
    assert report.exit_code == code
    rejected = {6: "3.2 %", 7: "<0.001 %"}[gpus]
    assert report.summary.endswith(f" With {gpus} GPUs {rejected} are rejected.")
    assert (
        "7 GPUs of 100 sessions (as given) carry 600 erlangs, <0.001 % rejected (allowed 1 %)"
        in report.summary
    )


def test_slots_from_a_capacity_report(tmp_path: Path) -> None:
    path = capacity_report(tmp_path / "report.json")
    fleet = predict_fleet(FleetQuery(**LOAD, capacity_report=path)).fleet
    assert fleet is not None
    assert fleet.sessions_per_gpu == 40
    assert fleet.sessions_per_gpu_source.startswith("measured")


def test_slots_from_a_card_are_the_low_end_of_the_estimate() -> None:
    report = predict_fleet(FleetQuery(**LOAD, cards=cards("h200")))
    assert report.fleet is not None
    assert report.fleet.sessions_per_gpu == report.gpus[0].sessions.low
    assert "estimated" in report.fleet.sessions_per_gpu_source


def test_a_peak_instead_of_a_load() -> None:
    fleet = predict_fleet(FleetQuery(peak_sessions=450, sessions_per_gpu=100, block=0.001)).fleet
    assert fleet is not None
    assert (fleet.gpus_needed, fleet.gpus_with_spare_node) == (5, 6)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sessions_per_gpu": 10}, "--arrival-rate"), ({**LOAD}, "per GPU is unknown"),
        ({**LOAD, "peak_sessions": 5, "sessions_per_gpu": 10}, "contradicts"),
        ({**LOAD, "sessions_per_gpu": 1, "headroom": 0.5}, "holds no session"),
        ({**LOAD, "cards": cards("h100", "l40s")}, "one kind"),
        ({**LOAD, "sessions_per_gpu": 3, "capacity_report": Path("x")}, "contradicts"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        predict_fleet(FleetQuery(**keys))


def test_a_report_that_confirmed_nothing_is_refused(tmp_path: Path) -> None:
    path = capacity_report(tmp_path / "report.json", safe=None)
    with pytest.raises(UsageError, match="no number of sessions was confirmed"):
        predict_fleet(FleetQuery(**LOAD, capacity_report=path))


def test_cards_are_estimates_with_intervals() -> None:
    for estimate in predict_cards(cards("h100", "l40s", "mi300x")).gpus:
        low, middle, high = estimate.sessions.low, estimate.sessions.estimate, estimate.sessions.high
        assert low is not None and middle is not None and high is not None  # noqa: PT018
        assert low <= middle <= high
        assert estimate.spread == 2.0
        assert "not measured" in estimate.how


def test_a_measurement_narrows_the_interval(tmp_path: Path) -> None:
    path = capacity_report(tmp_path / "report.json")
    (estimate,) = predict_cards(cards("h200", measured=path)).gpus
    assert estimate.spread == 1.25
    assert "measured on h200" in estimate.how
    assert estimate.step_ms["16"] == pytest.approx(45.0, rel=0.1)  # on the card it was measured on


def test_a_measurement_on_an_unknown_device_is_not_scaled(tmp_path: Path) -> None:
    path = capacity_report(tmp_path / "report.json", device="Some Other Card")
    with pytest.raises(UsageError, match="Some Other Card"):
        predict_cards(cards("h100", measured=path))


def probe_report(path: Path, device: str) -> Path:
    cells = [
        GridCellResult(
            policy="ring(3000)", sessions=n, age_s=240.0, resident_tokens=3000, steps=15, median_ms=ms
        )
        for n, ms in CURVE
    ]
    limits = DevicePeaksResult(
        bytes_per_s=3.35e12, flops_per_s=9.89e14, weight_bytes=1, weight_read_floor_ms=1.0
    )
    report = Report(
        command="probe", status="complete", verdict=None, exit_code=0, started_at=datetime.now(UTC),
        duration_s=1.0, argv=[], version="0", environment={"cpu": device},
        probe=ProbeResult(kind="latency", cells=cells, device_peaks=limits),
    )  # fmt: skip
    path.write_text(report_json(report))
    return path


def test_a_probe_calibrates_by_its_own_devices_limits(tmp_path: Path) -> None:
    path = probe_report(tmp_path / "report.json", "Some Processor")
    (estimate,) = predict_cards(cards("h100", measured=path)).gpus
    assert "Some Processor" in estimate.how
    assert estimate.spread == 2.0  # another kind of device
    assert estimate.step_ms["16"] == pytest.approx(45.0, rel=0.1)  # its limits are an H100's


def test_a_card_that_cannot_hold_the_weights_holds_no_session() -> None:
    small = PERSONAPLEX.model_copy(
        update={"shape": PERSONAPLEX.shape.model_copy(update={"weight_bytes": 40 * 2**30})}
    )
    (estimate,) = predict_cards(GpuQuery(("rtx-4090",), small, 600.0)).gpus
    assert (estimate.memory_sessions, estimate.sessions.estimate, estimate.limited_by) == (0, 0, "memory")
