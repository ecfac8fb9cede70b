"""Questions that are asked first: each gets an answer, or the one flag that is missing."""

from __future__ import annotations

import json
import socket

import pytest

from metronome_cli.cli.main import run
from metronome_cli.commands.predict.from_metrics import ONCE_INTERVAL_S
from metronome_cli.forecast.fleet import Fleet, FleetDemand
from metronome_cli.forecast.gpus import find_gpu, gpus

QWEN = ["predict", "--profile", "qwen2.5-omni-7b", "--device-memory", "80GiB", "--session-length", "5m"]


def answered(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    assert run([*argv, "--json"]) in (0, 3, 4)
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_how_many_sessions_is_answered_with_the_number_that_holds(capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, *QWEN)
    forecast = found["forecast"]
    assert isinstance(forecast, dict)
    most = forecast["max_sessions"]
    assert str(found["summary"]).startswith(f"At most {most} sessions for 5 min")
    asked = [answered(capsys, *QWEN, "--sessions", str(count))["forecast"] for count in (most, most + 1)]
    holds, fails = (one["collapse_probability"] for one in asked)  # type: ignore[index]
    assert holds <= 0.05 < fails


def test_without_a_model_the_missing_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "--gpu", "a100"]) == 2
    assert "--profile" in capsys.readouterr().err
    assert run(["predict"]) == 2
    assert "--sessions" in capsys.readouterr().err
    assert run(["predict", "--profile", "qwen2.5-omni-7b"]) == 2
    assert "--device-memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a100-80gb", "a100-80-sxm"), ("NVIDIA A100-SXM4-80GB", "a100-80-sxm"), ("A100 40GB", "a100-40"),
        ("NVIDIA H100 80GB", "h100-sxm"), ("rtx4090", "rtx-4090"), ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("L40S-48GB", "l40s"), ("nvidia-h200", "h200"),
    ],
)  # fmt: skip
def test_product_names_find_their_card(name: str, key: str) -> None:
    assert find_gpu(name)[0] == key


def test_every_title_finds_its_card() -> None:
    assert {find_gpu(gpu.title)[0] for gpu in gpus().values()} == set(gpus())


@pytest.mark.parametrize(("sessions", "verdict"), [("2", "pass"), ("5000", "fail")])
def test_sessions_beside_a_card_are_judged(
    sessions: str, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answered(capsys, "predict", "--profile", "moshi", "--gpu", "a100", "--sessions", sessions)
    assert found["verdict"] == verdict
    assert f"{int(sessions):,} sessions" in str(found["summary"])


@pytest.mark.parametrize("node", [1, 2, 8])
@pytest.mark.parametrize("peak", [1, 61, 900, 5000])
def test_a_fleet_is_of_whole_nodes_and_the_smallest_that_holds(node: int, peak: int) -> None:
    fleet = Fleet(FleetDemand(peak=peak), 61, 0.01, 0.0, node)
    assert fleet.needed % node == 0
    assert fleet.size(fleet.needed).blocking <= 0.01
    smaller = fleet.needed - node
    assert smaller == 0 or fleet.size(smaller).blocking > 0.01
    assert all(size.gpus % node == 0 for size in fleet.table())


def test_a_refused_connection_ends_a_watch_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for more in (["--once"], []):
        assert run(["predict", "watch", f"http://127.0.0.1:{port}/metrics", *more]) == 1
        assert "no server listens there" in capsys.readouterr().err


def test_once_has_enough_scrapes_within_two_seconds() -> None:
    from metronome_cli.forecast.extrapolation import FEWEST

    assert 2 * FEWEST * ONCE_INTERVAL_S <= 2.0
