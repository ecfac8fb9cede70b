"""Reads a report from a file or a run's directory. It is data: never executed, always bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import read_file
from metronome_cli.core.strict_json import MAX_BYTES, BadJson, dumps, loads
from metronome_cli.results.run_report import SCHEMA, Report

REPORT_FILE = "report.json"
_SHOWN_PROBLEMS = 3


def load_report(path: Path) -> Report:
    """The report in a file, or in `report.json` of a directory. Raises UsageError naming file and field."""
    file = path / REPORT_FILE if path.is_dir() else path
    try:
        value = loads(read_bounded(file))
    except BadJson as error:
        raise UsageError(f"{file}: {error}", hint="give a report.json that metronome wrote") from None
    return parse_report(value, str(file))


def read_bounded(file: Path) -> bytes:
    """The bytes of a file of bearable size. Raises UsageError."""
    return read_file(file, MAX_BYTES)


def parse_report(value: Any, where: str) -> Report:
    """A report from parsed JSON. Raises UsageError; `where` says where it came from."""
    found = value.get("schema") if isinstance(value, dict) else None
    if found != SCHEMA:
        stated = f"schema {str(found)[:60]!r}" if found is not None else "no schema"
        raise UsageError(
            f"{where}: {stated}, where {SCHEMA!r} is expected",
            hint="give a report.json that this version of metronome can read",
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
