"""A former name is refused wherever it is given, and the present one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metronome_cli.cli.command_tree import commands
from metronome_cli.cli.main import run
from metronome_cli.config.settings import resolve
from metronome_cli.config.settings_table import SETTINGS
from metronome_cli.core import renamed
from metronome_cli.core.errors import UsageError
from metronome_cli.measure.objective import Objective
from metronome_cli.report.compare.gates import Gate
from metronome_cli.report.report_file import load_report

TAKEN = {name.lstrip("-") for each in commands() for one in each.parameters for name in one.names}


def test_every_present_name_exists_and_no_former_one_does() -> None:
    settings = {row.flag.lstrip("-") for row in SETTINGS.values()}
    assert set(renamed.OPTIONS.values()) <= TAKEN | settings
    assert not set(renamed.OPTIONS) & (TAKEN | settings)
    assert {name for names in renamed.SYNONYMS.values() for name in names} <= TAKEN
    assert not set(renamed.SYNONYMS) & set(SETTINGS)


@pytest.mark.parametrize("words", [
    "capacity --engine vllm : --backend", "capacity --target x : --url", "serve --for 3s : --duration",
    "compare a b --fail p99:5% : --fail-on", "probe quality --stretch 3 : --age-bucket",
    "capacity --users 3 : --sessions", "capacity --concurrency 3 : --sessions", "capacity --rate 3/s : --arrival-rate",
    "capacity --duration 3m : --session-length", "predict --trace x : predict trace",
    "predict --scrape x : predict watch", "serve --sessions 3 : --max-sessions", "capacity --batching tick : periodic",
    "capacity --slo streak<3 : miss_streak<3",
])  # fmt: skip
def test_an_option_is_named(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    given, _, named = words.partition(" : ")
    assert run(given.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert named in captured.err


@pytest.mark.parametrize(
    ("former", "present"), [("engine", "backend"), ("pool", "kv_pool"), ("budget", "search_time")]
)
def test_settings_and_variables_are_named(former: str, present: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"{former}: 3GiB\n")
    with pytest.raises(UsageError, match=f"{former!r} was renamed to {present!r}"):
        resolve({"config": str(file)}, {})
    with pytest.raises(UsageError) as caught:
        resolve({}, {f"METRONOME_{former.upper()}": "x"})
    assert caught.value.hint == f"it was renamed to METRONOME_{present.upper()}"


def test_a_profile_of_former_keys_is_told_every_present_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[2] / "profiles" / "default.yaml").read_text()
    for former, present in (("prefill", "into"), ("kv_pool", "pool"), ("block_size", "block_tokens"),
                            ("turn_taking", "turns"), ("hidden_size", "hidden")):  # fmt: skip
        text = text.replace(f"{former}:", f"{present}:")
    (tmp_path / "old.yaml").write_text(text)
    assert run(["profiles", "check", str(tmp_path / "old.yaml")]) == 2
    shown = "".join(capsys.readouterr())
    for name in ("tokens.prefill", "kv_pool", "turn_taking", "shape.hidden_size"):
        assert f"was renamed to {name}" in shown


@pytest.mark.parametrize("former", renamed.METRICS)
def test_gates_and_objectives_are_named(former: str) -> None:
    with pytest.raises(UsageError, match=f"{former} was renamed to {renamed.METRICS[former]}"):
        Gate.parse(f"{former}:2")
    if former != "t_sat":
        with pytest.raises(UsageError, match=f"{former} was renamed to {renamed.METRICS[former]}"):
            Objective.parse(f"{former}<2")


def test_a_report_of_the_first_version_is_refused_by_its_version(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps({"schema": "metronome.report/1", "answer": "Safe: 3"}))
    with pytest.raises(UsageError) as caught:
        load_report(tmp_path)
    assert "metronome.report/1" in caught.value.message
    assert "became metronome.report/2" in str(caught.value.hint)
