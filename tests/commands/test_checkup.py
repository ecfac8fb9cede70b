"""What the doctor says of machines that lack something, or are busy."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from typing import Any

import pytest
import torch

from metronome_cli.backends.in_process import threads
from metronome_cli.commands import checkup
from metronome_cli.commands.checkup import Checkup, CheckupFinding
from metronome_cli.core.errors import ExitCode
from metronome_cli.measure import machine_load
from metronome_cli.measure.machine_load import MachineLoad, step_threads
from metronome_cli.measure.timer_latency import TimerLatency
from metronome_cli.report.doctor_text import checkup_json, render_checkup, verdict

QUIET = MachineLoad(4.0, 0.1, 1.0, 2, "OMP_NUM_THREADS", 0.1)
PROMPT = TimerLatency(500, 2.0, 50.0, 60.0, 90.0, 200.0, 40.0)


def findings(area: str, found: Any) -> CheckupFinding:
    (one,) = [finding for finding in found if finding.area == area]
    return one


def test_a_quiet_machine_needs_no_fix() -> None:
    assert all(f.state == "ok" and not f.fix for f in (*checkup._load(QUIET), checkup._timer(PROMPT)))


@pytest.mark.parametrize(
    ("threads", "busy", "wide"), [(4, 2.5, True), (2, 1.5, False), (2, 2.5, True), (1, 4.0, False)]
)
def test_more_fixed_threads_than_free_cores_are_said(threads: int, busy: float, wide: bool) -> None:
    found = findings("threads", checkup._load(replace(QUIET, threads=threads, busy_cores=busy)))
    assert (found.state == "note") == wide
    assert found.fix.startswith("unset OMP_NUM_THREADS:") if wide else not found.fix


@pytest.mark.parametrize("busy", [0.0, 4.0])
def test_threads_that_are_timed_need_no_advice_however_busy_the_machine(busy: float) -> None:
    found = findings("threads", checkup._load(replace(QUIET, threads=4, threads_from="", busy_cores=busy)))
    assert (found.state, found.fix) == ("ok", "")
    assert found.said.startswith("1 to 4 per step, the fastest number")


@pytest.mark.parametrize(
    "environ", [{}, {"OMP_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "no"}, {"MKL_NUM_THREADS": "1"}]
)
def test_the_doctor_calls_fixed_what_the_program_does_not_time(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(threads, "TRIAL_S", 0.0)
    timed = threads.fit(lambda: None, environ) is not None
    assert timed == (not step_threads(4.0, environ)[1])


def test_a_busy_machine_and_a_small_share_of_a_core_are_said() -> None:
    assert findings("load", checkup._load(replace(QUIET, busy_cores=3.5))).state == "note"
    assert findings("load", checkup._load(replace(QUIET, core_share=0.5))).state == "note"
    assert findings("load", checkup._load(replace(QUIET, busy_cores=None))).said.startswith("unknown")


def test_late_wake_ups_are_said() -> None:
    found = checkup._timer(replace(PROMPT, p99_us=5000.0))
    assert (found.state, "--clock virtual" in found.fix) == ("note", True)


def test_variables_that_mean_nothing_are_named_with_the_nearest_known_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("METRONOME_SESSOINS", "3")
    monkeypatch.setenv("METRONOME_KV_POOL", "2GiB")
    found = tuple(checkup._variables(os.environ))
    assert [(one.state, one.said) for one in found] == [
        ("wrong", "METRONOME_SESSOINS is unknown, so commands reject it")
    ]
    assert found[0].fix == "did you mean METRONOME_SESSIONS? Else unset it"
    assert verdict(found) == "To be put right: variable."
    assert Checkup(found, {}, PROMPT, QUIET).exit_code == ExitCode.USAGE


def test_what_is_needed_and_missing_is_the_exit_code() -> None:
    lacking = [
        findings("torch", checkup._torch({"packages": {"torch": None}})),
        findings("scipy", checkup._packages({"scipy": None})),
        findings("audio", checkup._audio(None)),
    ]
    assert all(f.state == "missing" and "install" in f.fix for f in lacking)
    result = Checkup(tuple(lacking), {}, PROMPT, QUIET)
    assert result.exit_code == ExitCode.USAGE
    assert verdict(lacking) == "Needed and missing: torch, scipy, audio."
    assert replace(result, findings=(CheckupFinding("extra net", "note", "", ""),)).exit_code == ExitCode.OK


def test_an_absent_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "find_spec", lambda name: None if name == "msgpack" else object())
    found = findings("extra net", checkup._extras())
    assert found.state == "note"
    assert "without msgpack" in found.said
    assert found.fix == "pip install 'metronome-cli[net]'"


def test_an_old_libsndfile_is_no_reason_to_stop() -> None:
    (found,) = checkup._audio(("1.0.28", frozenset({"WAV", "FLAC", "OGG"})))
    assert (found.state, "not MP3" in found.said) == ("note", True)


def test_cards_are_listed() -> None:
    facts = {"packages": {"torch": "2.9"}, "devices": [{"name": "A card", "memory_bytes": 2**36}]}
    assert findings("device", checkup._torch(facts)).said == "cuda:0 A card, 64 GiB"


@pytest.mark.parametrize(("environ", "threads"), [
    ({}, 4), ({"OMP_NUM_THREADS": "2"}, 2), ({"OMP_NUM_THREADS": "3,1"}, 3), ({"OMP_NUM_THREADS": "no"}, 4),
    ({"MKL_NUM_THREADS": "1"}, 1),
])  # fmt: skip
def test_threads_of_a_step(environ: dict[str, str], threads: int) -> None:
    assert step_threads(4.0, environ)[0] == threads


def test_a_system_that_does_not_say_is_not_taken_for_idle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(machine_load, "_STAT", tmp_path / "absent")
    monkeypatch.setattr(machine_load, "SPIN_S", 0.01)
    load = machine_load.CpuLoadSampler().read({})
    assert load.busy_cores is None
    assert load.free_cores is None


@pytest.mark.parametrize("width", [30, 40, 100, 300])
def test_text_fits_its_width(width: int) -> None:
    found = (
        *checkup._load(replace(QUIET, busy_cores=4.0, threads=4)),
        checkup._timer(PROMPT),
        checkup._terminal(io.StringIO(), False),
    )
    text = render_checkup(Checkup(found, {}, PROMPT, QUIET), width)
    assert max(map(len, text.splitlines())) <= width


def test_this_machine_can_be_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "measure_wakeups", lambda: PROMPT)
    result = checkup.examine(io.StringIO(), redraws=False)
    data = checkup_json(result)
    assert data["exit_code"] == 0
    assert {"processor", "memory", "torch", "audio", "timer", "load", "threads"} <= {
        finding["area"] for finding in data["findings"]
    }
