"""`metronome report`: a run's directory in, the report out in any form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metronome_cli.cli import options

if TYPE_CHECKING:
    from metronome_cli.report.model import Report

EPILOG = """A run that was killed left no report.json; its events.jsonl is enough to rebuild one.

Examples:

  metronome report run/

  metronome report run/ --html report.html --junit report.xml

  metronome report run/events.jsonl --json
"""


def report(
    path: Annotated[
        Path, typer.Argument(help="A run's --output directory, a report.json or an events.jsonl.")
    ],
    from_events: Annotated[
        bool, typer.Option("--from-events", help="Rebuild it even where there is a report.json.")
    ] = False,
    json_: options.ReportJson = False,
    html: options.ReportHtml = None,
    junit: options.ReportJunit = None,
    save: Annotated[
        bool, typer.Option("--save", help="Write report.json and report.html into the run's directory.")
    ] = False,
) -> None:
    """Print a run's report, convert it, or rebuild it after a kill."""
    from metronome_cli.cli.console import write
    from metronome_cli.report.rebuild import load_run
    from metronome_cli.ui.working import working

    found = load_run(path, from_events=from_events)
    write(_rendered(found, json_))  # first: a path that cannot be written must not cost the answer
    with working("writing the report"):
        _write_files(found, html, junit, (path if path.is_dir() else path.parent) if save else None)


def _write_files(found: Report, html: Path | None, junit: Path | None, directory: Path | None) -> None:
    from metronome_cli.report.html import write_html
    from metronome_cli.report.junit import write_junit
    from metronome_cli.report.write import write_report

    if directory is not None:
        write_report(found, directory)
    if html is not None:
        write_html(found, html)
    if junit is not None:
        write_junit(found, junit)


def _rendered(found: Report, as_json: bool) -> str:
    from metronome_cli.report.text import render_text
    from metronome_cli.report.write import report_json

    return report_json(found) if as_json else render_text(found)
