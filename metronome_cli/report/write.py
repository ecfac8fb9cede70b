"""Writes a report, whole or not at all: to a file beside the target first, then renamed over it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from metronome_cli.errors import MetronomeError
from metronome_cli.report.model import Report
from metronome_cli.report.read import REPORT_FILE
from metronome_cli.report.strict_json import dumps

HTML_FILE = "report.html"


def report_json(report: Report) -> str:
    """The report as strict JSON: what `--json` prints and `report.json` holds."""
    return dumps(report.model_dump(mode="json", by_alias=True), indent=2)


def write_report(report: Report, directory: Path) -> list[Path]:
    """`report.json`, then `report.html`, in a directory that is made if need be; the files written.

    Raises MetronomeError where the disk refuses; a page that fails leaves the JSON in place.
    """
    from metronome_cli.report.html import write_html

    json_file = write_text(directory / REPORT_FILE, report_json(report) + "\n")
    return [json_file, write_html(report, directory / HTML_FILE)]


def write_text(path: Path, text: str) -> Path:
    """Put text into a file, whole or not at all. Raises MetronomeError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # /dev/stdout, a pipe: nothing to rename over
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path, text)
    except OSError as error:
        raise MetronomeError(
            f"cannot write {path}: {error.strerror or error}", hint="give a path that can be written"
        ) from error
    return path


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
