"""`metronome probe quality`: what it refuses, before anything heavy is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metronome_cli.cli.main import run


def refused(capsys: Any, *arguments: str) -> str:
    assert run(["probe", "quality", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    return str(output.err)


@pytest.mark.parametrize("profile", [(), ("--profile", "qwen2.5-omni-tiny"), ("--weights", "random")])
def test_random_weights_are_refused_with_the_reason(capsys: Any, profile: tuple[str, ...]) -> None:
    said = refused(capsys, *profile)
    assert "random ones predict every text equally badly" in said
    assert "--weights DIR" in said


def test_a_model_that_is_not_there_is_named(capsys: Any, tmp_path: Path) -> None:
    assert "nowhere" in refused(capsys, "--model", str(tmp_path / "nowhere"))


def test_a_short_name_that_is_not_installed_names_its_extra(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        __import__("metronome_cli.probe.quality.bundled_model", fromlist=["PACKAGES"]).PACKAGES,
        "smollm2",
        "no-such-package-at-all",
    )
    assert "metronome-cli[smollm2]" in refused(capsys, "--model", "smollm2")


def test_unknown_sink_positions_are_refused(capsys: Any) -> None:
    assert "sink" in refused(capsys, "--sink-positions", "sideways").lower()


def planned(capsys: Any, *arguments: str) -> dict[str, Any]:
    assert run(["probe", "quality", "--model", "smollm2", "--dry-run", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_dry_run_names_the_variants_and_loads_nothing(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metronome_cli.probe.quality_report.run_quality", None)
    plan = planned(capsys, "--window", "128", "--sinks", "4")
    assert plan["variants"] == ["unbounded", "window(128, 0)", "window(128, 4)", "window(128, 4), absolute"]
    assert plan["text_words"] > 1000
    assert plan["questions"] == 4 * 8


def test_quick_cuts_what_was_left_at_its_default_and_nothing_else(capsys: Any) -> None:
    whole, quick = planned(capsys), planned(capsys, "--quick")
    assert len(quick["variants"]) < len(whole["variants"]) / 3
    assert (quick["text_tokens"], quick["questions"], quick["free_run_tokens"]) == (1500, 4, 128)
    kept = planned(capsys, "--quick", "--free-run-tokens", "64", "--text-tokens", "300")
    assert (kept["free_run_tokens"], kept["text_tokens"]) == (64, 300)
