"""`metronome compare`: two sides in, what changed out, the exit code of the gates."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

EPILOG = """A side is a report, a run's --output directory, or a directory of several runs of the same set-up:
repeats show the noise. A run that failed counts as 0 sessions.

It ends with 0 where no gate was reached, with 3 where one was, with 4 where noise or missing data left one open.

Examples:

  metronome compare baseline/ run/ --fail-on 'p99:5%' --fail-on 'safe_sessions:-1'

  metronome compare baseline/ runs/ --fail-on 'p99:3ms' --format markdown
"""


class Format(StrEnum):
    """How the result is printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


def compare(
    base: Annotated[Path, typer.Argument(help="Report or directory to compare with.")],
    new: Annotated[Path, typer.Argument(help="Report or directory that is judged.")],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(help="Fail at this change for the worse, METRIC:CHANGE; repeatable.", metavar="GATE"),
    ] = None,
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Compare other machines, profiles or settings too.")
    ] = False,
    allow_missing_baseline: Annotated[
        bool, typer.Option("--allow-missing-baseline", help="Pass if there is no baseline yet.")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write a Markdown summary to this file.", metavar="FILE")
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="How to print it: text, markdown or json.", metavar="WORD")
    ] = Format.TEXT,
) -> None:
    """What changed between two runs, and whether it is worse than allowed."""
    from metronome_cli.cli.console import write
    from metronome_cli.core.files import write_text
    from metronome_cli.report.compare.comparison import ComparisonPlan
    from metronome_cli.report.compare.comparison import compare as run_compare
    from metronome_cli.report.compare.gates import Gate

    gates = tuple(Gate.parse(text) for text in fail_on or ())
    comparison = run_compare(ComparisonPlan(base, new, gates, allow_mismatch, allow_missing_baseline))
    if markdown is not None:
        write_text(markdown, _rendered(comparison, Format.MARKDOWN) + "\n")
    write(_rendered(comparison, format_))
    raise typer.Exit(comparison.exit_code)


def _rendered(comparison: object, format_: Format) -> str:
    from metronome_cli.core.strict_json import dumps
    from metronome_cli.report.compare.comparison import ReportComparison
    from metronome_cli.report.compare.comparison_text import render_compare_text, render_markdown

    assert isinstance(comparison, ReportComparison)
    if format_ is Format.JSON:
        return dumps(comparison.model_dump(mode="json", by_alias=True), indent=2)
    return render_markdown(comparison) if format_ is Format.MARKDOWN else render_compare_text(comparison)
