"""A report format is one file and one row: its option is in every command that writes a report."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import typer.main

from metronome_cli.cli.command_table import load_command
from metronome_cli.cli.output import OutputFiles
from metronome_cli.config.settings_table import FORMATS
from tests.report.builders import capacity_report


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_is_a_file_and_an_option(name: str, tmp_path: Path) -> None:
    assert import_module(f"metronome_cli.report.{name}").render(capacity_report())
    OutputFiles(None, {name: tmp_path / "file"}).write(capacity_report())
    assert (tmp_path / "file").stat().st_size
    for command in ("capacity", "report"):
        assert f"--{name}" in {word for param in load_command(command).params for word in param.opts}


def test_predict_and_probe_have_them_too() -> None:
    for group in ("predict", "probe"):
        command = load_command(group)
        assert isinstance(command, typer.main.TyperGroup)
        for sub in command.commands.values():
            words = {word for param in sub.params for word in param.opts}
            assert {f"--{name}" for name in FORMATS} <= words
