"""Where a report goes: stdout, and the files that --output, --html and --junit name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from metronome_cli.results.run_report import Report


class PrintablePlan(Protocol):
    """What a run would do."""

    def as_text(self) -> str: ...

    def as_json(self) -> str: ...


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """What is to be written. `directory`, which `flag` named, gets report.json and report.html."""

    directory: Path | None
    html: Path | None
    junit: Path | None
    flag: str = "--output"

    def check(self) -> None:
        """Raises UsageError for what cannot be written: before the work, not after it."""
        from metronome_cli.core.files import check_writable
        from metronome_cli.report.report_file import REPORT_FILE

        if self.directory is not None:
            check_writable(self.directory / REPORT_FILE, self.flag)
        if self.html is not None:
            check_writable(self.html, "--html")
        if self.junit is not None:
            check_writable(self.junit, "--junit")

    def write(self, report: Report) -> None:
        """Write them. Raises MetronomeError where the disk refuses."""
        from metronome_cli.ui.status_line import status_line

        if any(path is not None for path in (self.directory, self.html, self.junit)):
            with status_line("writing the report"):
                self._write(report)

    def _write(self, report: Report) -> None:
        if self.directory is not None:
            from metronome_cli.report.report_file import write_report

            write_report(report, self.directory)
        if self.html is not None:
            from metronome_cli.report.html.page import write_html

            write_html(report, self.html)
        if self.junit is not None:
            from metronome_cli.report.junit import write_junit

            write_junit(report, self.junit)


def show(report: Report, *, as_json: bool) -> None:
    """The report on stdout."""
    from metronome_cli.cli.console import write
    from metronome_cli.report.plain_text import render_text
    from metronome_cli.report.report_file import report_json

    write(report_json(report) if as_json else render_text(report))


def show_plan(plan: PrintablePlan, *, as_json: bool) -> None:
    """What --dry-run foretells, on stdout."""
    from metronome_cli.cli.console import print_text, write

    write(plan.as_json()) if as_json else print_text(plan.as_text())
