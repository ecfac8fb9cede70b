"""`events.jsonl`: a run's facts, one JSON object a line, on disk as soon as the run has begun.

The first line names the format: `{"schema": "metronome.events/2", ...}`. Every other line is `{"t":
seconds since the file was opened, "kind": ..., "data": {...}}`. A line goes out in one write to the
system, so a killed process loses at most the line it was at; a loss of power may cost more, nothing is
synced. If a write fails, one notice is emitted and the run continues; lines already written are kept. A
directory that was removed under the run is made again, with all that was written.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metronome_cli import __version__
from metronome_cli.core.errors import UsageError, write_hint
from metronome_cli.core.strict_json import dumps
from metronome_cli.report.report_file import HTML_FILE, REPORT_FILE
from metronome_cli.results.run_report import SCHEMA

if TYPE_CHECKING:
    from metronome_cli.results.events import Snapshot

EVENTS_SCHEMA = "metronome.events/2"
EVENTS_FILE = "events.jsonl"
OLD = ".previous"
PREAMBLE = ("audio", "notice", "phase")  # nothing can be rebuilt from these alone


class EventsFile:
    """An observer that keeps events in a run's directory.

    `tell` gets the one notice when writing fails. Raises UsageError when the directory cannot be used at all.
    The file is made when there is something to rebuild a report from: a run that ends before, for a mistyped
    flag or file, leaves what an earlier one put there alone. Otherwise an earlier run's files are kept under
    `.previous` names.
    """

    def __init__(self, directory: Path, tell: Callable[[str], None] = lambda message: None) -> None:
        self.path = directory / EVENTS_FILE
        self._tell = tell
        self._told: set[str] = set()
        self._began_s = time.monotonic()
        self._fd: int | None = None
        self._kept: list[bytes] | None = [_line(head())]  # not yet in a file; None once there is one
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                pass
            self._lock = _locked(directory)
        except OSError as error:
            raise UsageError(
                f"cannot write to {directory}: {error.strerror or error}",
                hint=write_hint(error),
            ) from error

    # -- what an observer is told ------------------------------------------------------------------

    def phase(self, name: str, detail: str) -> None:
        """A new phase began."""
        self.event("phase", {"name": name, "detail": detail})

    def snapshot(self, snapshot: Snapshot) -> None:
        """Nothing: windows come as events."""

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """One line, in the file when this returns."""
        line = _line({"t": round(time.monotonic() - self._began_s, 4), "kind": kind, "data": data})
        if self._kept is None:
            self._guarded(lambda: self._append(line))
            return
        self._kept.append(line)
        if kind not in PREAMBLE:
            begun, self._kept = b"".join(self._kept), None
            self._guarded(lambda: self._begin(begun))

    def notice(self, message: str) -> None:
        """One line for the user, kept."""
        self.event("notice", {"message": message})

    def close(self) -> None:
        """No more events."""
        self._kept = None
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- the disk ----------------------------------------------------------------------------------

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def _begin(self, lines: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        keep_previous(self.path.parent)
        self._fd = self._open()
        self._write_all(lines)

    def _append(self, line: bytes) -> None:
        if self._fd is None:
            return
        if os.fstat(self._fd).st_nlink == 0:
            self._make_again()
        self._write_all(line)

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self._tell_once(
                f"{self.path}: {error.strerror or error}; no more events are kept, the run continues"
            )
            self.close()

    def _write_all(self, line: bytes) -> None:
        """The whole line; where only a part of it fits, the part is taken back."""
        assert self._fd is not None
        before = os.fstat(self._fd).st_size
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError:
            os.ftruncate(self._fd, before)
            raise

    def _make_again(self) -> None:
        """The file was removed; what it held is still readable through its descriptor."""
        assert self._fd is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lost, self._fd = self._fd, self._open()
        try:
            os.lseek(lost, 0, os.SEEK_SET)
            while chunk := os.read(lost, 1 << 20):
                self._write_all(chunk)
        finally:
            os.close(lost)
        self._tell_once(f"{self.path} was removed while in use; it has been made again")

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self._tell(message)


def _line(value: dict[str, Any]) -> bytes:
    return dumps(value).encode("utf-8") + b"\n"


def _locked(directory: Path) -> int | None:
    """A descriptor that holds the directory for one run, until it ends or is killed; None where nothing can.

    Raises UsageError while another run holds it: each would rename and replace the other's files.
    """
    try:
        import fcntl
    except ImportError:
        return None
    held = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise UsageError(
            f"another run is writing to {directory}", hint="give each run its own --output directory"
        ) from None
    except OSError:  # a file system without locks
        os.close(held)
        return None
    return held


def head() -> dict[str, Any]:
    """The first line."""
    opened = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {"schema": EVENTS_SCHEMA, "report_schema": SCHEMA, "version": __version__, "opened_at": opened}


def keep_previous(directory: Path) -> None:
    """Set aside what an earlier run left in the directory, so that files of two runs never mix."""
    for name in (EVENTS_FILE, REPORT_FILE, HTML_FILE):
        if (directory / name).exists():
            os.replace(directory / name, directory / (name + OLD))
