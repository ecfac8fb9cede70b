"""Reads and writes a report: `report.json` and `report.html` of a run.

A report that is read is data, never executed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import read_bounded, write_text
from metronome_cli.core.renamed import schema_hint
from metronome_cli.core.strict_json import BadJson, dumps, loads
from metronome_cli.results.run_report import SCHEMA, Report

REPORT_FILE = "report.json"
HTML_FILE = "report.html"
_SHOWN_PROBLEMS = 3


def report_json(report: Report) -> str:
    """Return the report as strict JSON: what `--json` prints and `report.json` holds."""
    return dumps(report.model_dump(mode="json", by_alias=True), indent=2)


def write_report(report: Report, directory: Path) -> list[Path]:
    """Write `report.json`, then `report.html`, to a directory, which is created; return the files written.

    Raises MetronomeError if a write fails. If the page fails, the JSON stays.
    """
    from metronome_cli.report.html.page import write_html

    json_file = write_text(directory / REPORT_FILE, report_json(report) + "\n")
    return [json_file, write_html(report, directory / HTML_FILE)]


def load_report(path: Path) -> Report:
    """Read the report in a file, or in `report.json` of a directory. Raises UsageError naming file and field."""
    file = path / REPORT_FILE if path.is_dir() else path
    try:
        value = loads(read_bounded(file))
    except BadJson as error:
        raise UsageError(f"{file}: {error}", hint="give a report.json that metronome wrote") from None
    return parse_report(value, str(file))


def parse_report(value: Any, where: str) -> Report:
    """Return a report from parsed JSON. `where` names its origin. Raises UsageError."""
    found = value.get("schema") if isinstance(value, dict) else None
    if found != SCHEMA:
        stated = f"schema {str(found)[:60]!r}" if found is not None else "no schema"
        raise UsageError(
            f"{where}: {stated}, where {SCHEMA!r} is expected",
            hint=schema_hint(found, SCHEMA),
        )
    try:
        return Report.model_validate_json(dumps(value), strict=True)
    except ValidationError as error:
        raise UsageError(f"{where}: {_problems(error)}", hint="its fields are in docs/report.md") from None


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join(str(step) for step in e['loc']) or 'report'}: {e['msg']}" for e in found]
    more = f"; and {len(lines) - _SHOWN_PROBLEMS} more" if len(lines) > _SHOWN_PROBLEMS else ""
    return "; ".join(line[:160] for line in lines[:_SHOWN_PROBLEMS]) + more
