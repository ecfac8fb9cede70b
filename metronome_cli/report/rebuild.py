"""Makes a report of `events.jsonl` after a run that could not write its own.

Events say all that is needed: `run_started` (conditions), `backend_started` (what ran), `audio`, `window`
(a window and its phase), `admission`, `trial` (a trial with its verdict), `policy_run`, `collapse`, `repeats`, and
`report` (the run's own final report, taken as it is). A torn last line is what a kill leaves and is passed over; any
other malformed line is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import read_bounded
from metronome_cli.core.renamed import schema_hint
from metronome_cli.core.strict_json import BadJson, loads
from metronome_cli.report.event_log import EVENTS_FILE, EVENTS_SCHEMA
from metronome_cli.report.event_replay import EventReplay
from metronome_cli.report.report_file import REPORT_FILE, load_report
from metronome_cli.results.run_report import Report


def load_run(path: Path, *, from_events: bool = False) -> Report:
    """The report of a run: `report.json` where there is one, else rebuilt from events.

    `path` is a run's directory, a report or an events file. Raises UsageError.
    """
    if path.suffix == ".jsonl":
        return rebuild(path)
    if path.is_dir() and (from_events or not (path / REPORT_FILE).exists()):
        if not (path / EVENTS_FILE).exists():
            raise UsageError(
                f"{path}: neither {REPORT_FILE} nor {EVENTS_FILE} in it",
                hint="give the directory of a run made with --output",
            )
        return rebuild(path / EVENTS_FILE)
    try:
        return load_report(path)
    except UsageError as error:
        directory = path if path.is_dir() else path.parent
        if not (directory / EVENTS_FILE).exists():
            raise
        hint = f"{EVENTS_FILE} is beside it: metronome report {directory} --from-events makes another of it"
        raise UsageError(error.message, hint=hint) from None


def rebuild(file: Path) -> Report:
    """The report that the events of a file add up to. Raises UsageError naming file and line."""
    story = EventReplay()
    for number, event in enumerate(read_events(file), start=2):
        try:
            story.take(event)
        except (ValidationError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{file}:{number}: not an event of a run: {_first_line(error)}") from None
    if story.final is not None:
        return story.final
    if story.conditions is None:
        raise UsageError(f"{file}: it ends before the run began", hint="there is nothing to rebuild")
    try:
        return story.report()
    except (ValidationError, TypeError, ValueError, UsageError) as error:
        raise UsageError(f"{file}: {_first_line(error)}") from None


def read_events(file: Path) -> Iterator[dict[str, Any]]:
    """Every whole event after the head line. Raises UsageError for a malformed line that is not the last."""
    lines = read_bounded(file).split(b"\n")
    torn = lines.pop()  # empty where the last line is whole
    if _is_json(torn):
        lines.append(torn)
    if not lines:
        raise UsageError(f"{file}: empty", hint="there is nothing to rebuild")
    found = _parse(file, 1, lines[0]).get("schema")
    if found != EVENTS_SCHEMA:
        raise UsageError(
            f"{file}: the first line does not name {EVENTS_SCHEMA!r}", hint=schema_hint(found, EVENTS_SCHEMA)
        )
    for number, line in enumerate(lines[1:], start=2):
        yield _parse(file, number, line)


def _parse(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = loads(line)
    except BadJson as error:
        raise UsageError(
            f"{file}:{number}: {error}", hint="the file was changed after it was written"
        ) from None
    if not isinstance(value, dict):
        raise UsageError(f"{file}:{number}: not an object")
    return value


def _is_json(line: bytes) -> bool:
    try:
        loads(line)
    except BadJson:
        return False
    return True


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
    return str(error).partition("\n")[0][:200]
