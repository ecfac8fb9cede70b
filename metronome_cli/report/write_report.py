"""Writes a report, whole or not at all: to a file beside the target first, then renamed over it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from metronome_cli.core.errors import MetronomeError, UsageError, write_hint
from metronome_cli.core.strict_json import dumps
from metronome_cli.report.read_report import REPORT_FILE
from metronome_cli.results.run_report import Report

HTML_FILE = "report.html"


def report_json(report: Report) -> str:
    """The report as strict JSON: what `--json` prints and `report.json` holds."""
    return dumps(report.model_dump(mode="json", by_alias=True), indent=2)


def write_report(report: Report, directory: Path) -> list[Path]:
    """`report.json`, then `report.html`, in a directory that is made if need be; the files written.

    Raises MetronomeError where the disk refuses; a page that fails leaves the JSON in place.
    """
    from metronome_cli.report.html.page import write_html

    json_file = write_text(directory / REPORT_FILE, report_json(report) + "\n")
    return [json_file, write_html(report, directory / HTML_FILE)]


def check_writable(path: Path, flag: str) -> None:
    """Raises UsageError where `write_text` could not put a file of that name. Leaves nothing behind."""
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        if path.exists() and not path.is_file():
            if not os.access(path, os.W_OK):
                raise PermissionError(None, "no permission to write")
            return
        there = next(parent for parent in path.absolute().parents if parent.exists() or parent.is_symlink())
        if not there.is_dir():
            raise NotADirectoryError(None, f"{there} is not a directory")
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise UsageError(
            f"{flag}: cannot write {path}: {error.strerror or error}", hint=write_hint(error)
        ) from None


def write_text(path: Path, text: str) -> Path:
    """Put text into a file, whole or not at all. Raises MetronomeError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # /dev/stdout, a pipe: nothing to rename over
            _into(path, text)
        else:
            _replace(path, text)
    except OSError as error:
        raise MetronomeError(
            f"cannot write {path}: {error.strerror or error}", hint=write_hint(error)
        ) from error
    return path


def _into(path: Path, text: str) -> None:
    """Into what is there; a pipe that nobody reads is an error, not a wait."""
    handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    os.set_blocking(handle, True)
    with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)


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
