"""`metronome report`: a run's directory in, the report out in any form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metronome_cli.cli import options

EPILOG = """A run that was killed left no report.json; its events.jsonl is enough to rebuild one.

Examples:

  metronome report run/

  metronome report run/ --html report.html --junit report.xml

  metronome report run/events.jsonl --json
"""


@options.report_files(are_settings=False)
def report(
    path: Annotated[
        Path, typer.Argument(help="A run's --output directory, a report.json or an events.jsonl.")
    ],
    from_events: Annotated[
        bool, typer.Option("--from-events", help="Rebuild it even where there is a report.json.")
    ] = False,
    json_: options.ReportJson = False,
    save: Annotated[
        bool, typer.Option("--save", help="Write report.json and report.html into the run's directory.")
    ] = False,
    **files: Path | None,
) -> None:
    """Print a run's report, convert it, or rebuild it after a kill."""
    from metronome_cli.cli.output import OutputFiles, show
    from metronome_cli.report.rebuild import load_run

    directory = path if path.is_dir() else path.parent
    wanted = OutputFiles(directory if save else None, files, flag="--save")
    wanted.check()
    found = load_run(path, from_events=from_events)
    show(found, as_json=json_)  # first: a full disk must not cost the answer
    wanted.write(found)
