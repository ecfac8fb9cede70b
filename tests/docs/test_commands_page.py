"""The reference is what the program is, and every example in help and pages still works."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from metronome_cli.cli.command_tree import CommandText, commands
from metronome_cli.cli.commands_docs import VALUES, commands_page, exit_codes
from metronome_cli.cli.main import run
from metronome_cli.commands.predict.from_metrics import ScrapePlan
from metronome_cli.commands.predict.size_fleet import FleetQuery
from metronome_cli.core.errors import MEANINGS, ExitCode
from metronome_cli.core.package_data import data_dir
from metronome_cli.forecast.memory import DEFAULT_SHARE
from metronome_cli.forecast.pool_forecast import DEFAULT_CONFIDENCE
from metronome_cli.probe.latency_grid import DEFAULT_BATCHES
from metronome_cli.probe.quality.sweep import SINKS, WINDOWS
from metronome_cli.report.event_log import EventsFile
from metronome_cli.report.event_replay import CONDITIONS
from metronome_cli.report.report_file import report_json
from metronome_cli.results.run_report import Report
from metronome_cli.server.reference_server import DEFAULT_SLOTS
from tests.commands.test_from_trace import timeline
from tests.docs.examples import ROOT, Example, check, every_example
from tests.forecast.test_memory import QWEN3
from tests.report.builders import capacity_report

EXAMPLES = list(dict.fromkeys(every_example()))
LEAVES = [each for each in commands() if not each.is_group]
CHEAP = ("predict", "profiles", "report", "compare", "doctor", "init")
NEEDS_MORE = (
    "--metrics-url",
    "watch",
    "--url",
    "--replay",
    "occupancy.csv",
)  # a server or a file that is not here


def test_the_page_is_what_the_program_says() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == commands_page(), "run `python -m metronome_cli.cli.commands_docs`"


def test_every_page_that_is_made_is_made_by_one_recipe() -> None:
    recipe = (ROOT / "Justfile").read_text(encoding="utf-8").split("\ngenerate:\n")[1].split("\n\n")[0]
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
    made_by = set(re.findall(r"`python -m (metronome_cli[.\w]+)`", pages))
    assert len(made_by) == 3
    assert made_by == set(re.findall(r"-m (metronome_cli[.\w]+)", recipe))


@pytest.mark.parametrize("each", LEAVES, ids=lambda each: each.path)
def test_every_command_says_what_it_takes_and_shows_examples(each: CommandText) -> None:
    assert each.help
    assert each.examples
    for one in each.parameters:
        assert one.help.endswith((".", "?")), one.names
        assert one.value or one.argument or one.default == "", one.names
    assert ExitCode.USAGE in exit_codes(each.path)


@pytest.mark.parametrize("each", LEAVES, ids=lambda each: each.path)
def test_help_shows_every_default_and_no_type_of_a_switch(
    each: CommandText, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    run([*each.path.split()[1:], "--help-all" if each.click.essential else "--help"])
    rows = capsys.readouterr().out.splitlines()
    assert not any("<bool>" in row for row in rows)
    for one in (one for one in each.parameters if not one.argument):
        shown = next(row for row in rows if f" {one.names[0]} " in row)
        assert bool(one.default) == ("[default: " in shown), one.names
        assert not one.default or re.search(rf"\[default: \(?{re.escape(one.default)}\)?\]", shown), one.names


@pytest.mark.parametrize(("path", "option", "default"), [
    ("capacity", "--clock", "the profile's, else real"),
    ("capacity", "--policy", "the profile's"),
    ("capacity", "--connect-timeout", "10s"),
    ("predict profile", "--confidence", f"{DEFAULT_CONFIDENCE:.0%}"),
    ("predict profile", "--memory-utilization", f"{DEFAULT_SHARE:.0%}"),
    ("predict fleet", "--max-blocking", f"{FleetQuery().block:.0%}"),
    ("predict watch", "--scrape-interval", f"{ScrapePlan('').every_s:g}s"),
    ("predict watch", "--fit-window", f"{ScrapePlan('').window_s / 60:g}m"),
    ("probe latency", "--batch-size", ", ".join(map(str, DEFAULT_BATCHES))),
    ("probe quality", "--window", ", ".join(map(str, WINDOWS))),
    ("probe quality", "--sinks", ", ".join(map(str, SINKS))),
    ("serve", "--max-sessions", str(DEFAULT_SLOTS)),
])  # fmt: skip
def test_defaults_are_those_that_are_used(path: str, option: str, default: str) -> None:
    command = next(each for each in LEAVES if each.path == f"metronome {path}")
    assert next(one for one in command.parameters if option in one.names).default == default


def test_values_that_are_not_plain_words_are_explained() -> None:
    used = {one.value for each in LEAVES for one in each.parameters if not one.argument}
    plain = {
        "",
        "NAME",
        "MODEL",
        "PATH",
        "DEVICE",
        "DIR",
        "FILE",
        "URL",
        "HOST",
        "CARDS",
        "W",
        "S",
        "N[/N]",
        "KEY=VALUE",
    }
    assert used - plain == set(VALUES)


@pytest.mark.parametrize("code", ExitCode)
def test_exit_codes_mean_the_same_on_both_pages(code: ExitCode) -> None:
    row = f"| {code.value} | `{code.name}` | {MEANINGS[code]} |"
    assert row in (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_every_example_is_one_that_the_program_takes(example: Example) -> None:
    check(example)


@pytest.mark.parametrize("words", [
    ("capcity",), ("capacity", "--polcy", "x"), ("capacity", "--kv-pool", "8"), ("capacity", "--clock", "fast"),
    ("profiles", "shw", "moshi"), ("capacity", "--profile", "mosh"), ("report",), ("predict", "fleet",
                                                                                   "--max-blocking", "x"),
    ("compare", "a", "b", "--fail-on", "p99"),
])  # fmt: skip
def test_an_example_that_no_longer_works_is_found(words: tuple[str, ...]) -> None:
    with pytest.raises(Exception, match=r".+"):
        check(Example("nowhere", words))


def runnable() -> list[Example]:
    """Those that take a moment, and the dry runs of others."""
    found: list[Example] = []
    for example in EXAMPLES:
        if not example.complete or any(word in NEEDS_MORE for word in example.words):
            continue
        if example.words and example.words[0] in CHEAP:
            found.append(Example(example.where, example.words))
        if example.words[:1] == ("capacity",) or example.words[:2] == ("probe", "latency"):
            words = example.words if "--dry-run" in example.words else (*example.words, "--dry-run")
            found.append(Example(example.where, words))
    return list({one.words: one for one in found}.values())


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Everything that examples name: runs, recordings, a checkpoint, a profile of one's own."""
    made: Report = capacity_report()  # type: ignore[no-untyped-call]
    events = EventsFile(tmp_path / "run")
    conditions = made.model_dump(mode="json", by_alias=True)
    events.event("run_started", {key: conditions[key] for key in CONDITIONS})
    for one in timeline():
        events.event("window", one.model_dump(mode="json") | {"phase": "single"})
    events.close()
    for name in ("run", "baseline", "runs/1", "runs/2", "BASE", "NEW", "nightly", "bounded"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "report.json").write_text(report_json(made))
    words = request.getfixturevalue("example").words
    models = [model for flag, model in pairwise(words) if flag == "--model"]
    for name in {"checkpoint", *models}:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "config.json").write_text(json.dumps(QWEN3))
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    (tmp_path / "calls").symlink_to(data_dir("sample_audio"))
    if words[0] != "init":
        shutil.copy(data_dir("profiles") / "moshi.yaml", tmp_path / "mine.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("example", runnable(), ids=str)
def test_every_cheap_example_runs(example: Example, workspace: Path, capsys: Any) -> None:
    code = run(example.words)
    captured = capsys.readouterr()
    assert code in (ExitCode.OK, ExitCode.OBJECTIVE_FAILED, ExitCode.INCONCLUSIVE), captured.err
    assert captured.out.strip()
