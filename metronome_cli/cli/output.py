"""Writes a report to stdout, to the directory of --output, and to the file of each format's option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from metronome_cli.results.run_report import Report


class PrintablePlan(Protocol):
    """The plan of a run."""

    def as_text(self) -> str: ...

    def as_json(self) -> str: ...


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Files to write. `directory`, named by `flag`, gets report.json and report.html; `files` by format."""

    directory: Path | None
    files: Mapping[str, Path | None]
    flag: str = "--output"

    def check(self) -> None:
        """Raise UsageError for a file that cannot be written, before the work begins."""
        from metronome_cli.core.files import check_writable
        from metronome_cli.report.report_file import REPORT_FILE

        if self.directory is not None:
            check_writable(self.directory / REPORT_FILE, self.flag)
        for name, file in self._wanted():
            check_writable(file, f"--{name}")

    def write(self, report: Report) -> None:
        """Write the files. Raises MetronomeError if a write fails."""
        from metronome_cli.ui.status_line import status_line

        if self.directory is not None or self._wanted():
            with status_line("writing the report"):
                self._write(report)

    def _write(self, report: Report) -> None:
        from metronome_cli.core.files import write_text
        from metronome_cli.report.report_file import write_report

        if self.directory is not None:
            write_report(report, self.directory)
        for name, file in self._wanted():
            write_text(file, import_module(f"metronome_cli.report.{name}").render(report))

    def _wanted(self) -> list[tuple[str, Path]]:
        return [(name, file) for name, file in self.files.items() if file is not None]


def show(report: Report, *, as_json: bool) -> None:
    """Print the report."""
    from metronome_cli.cli.console import write
    from metronome_cli.report.plain_text import render_text
    from metronome_cli.report.report_file import report_json

    write(report_json(report) if as_json else render_text(report))


def show_plan(plan: PrintablePlan, *, as_json: bool) -> None:
    """Print the plan of --dry-run."""
    from metronome_cli.cli.console import print_text, write

    write(plan.as_json()) if as_json else print_text(plan.as_text())
