"""Load trace files: JSON lines, `metronome.load/2`; docs/load-traces.md describes each line.

Each line is written during the run with one system call, so a killed run leaves complete lines. If a write fails, one
notice is emitted and the run continues; lines already written are kept. Reading is bounded, checks every line and
executes nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError

from metronome_cli.config.fields import StrictModel
from metronome_cli.core.errors import MetronomeError, UsageError, write_hint
from metronome_cli.core.files import read_bounded
from metronome_cli.core.renamed import schema_hint
from metronome_cli.core.strict_json import BadJson, dumps, loads
from metronome_cli.load.trace import (
    RecordedTrial,
    Seconds,
    Text,
    TraceSession,
    TraceTrial,
    TraceTrialEnd,
    Whole,
)

LOAD_SCHEMA = "metronome.load/2"
_FORMAT = "its format is in docs/load-traces.md"
TraceLine = TypeVar("TraceLine", bound=StrictModel)
Digest = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}$")]


class AudioFingerprint(StrictModel):
    """One file of the audio loop and the SHA-256 of its content."""

    file: Text
    sha256: Digest


class TraceHeader(StrictModel):
    """First line of the file: what all its trials share."""

    schema_: Annotated[Literal["metronome.load/2"], Field(alias="schema")] = "metronome.load/2"
    version: Text  # of the program that recorded it
    profile: Text
    period_s: Annotated[Seconds, Field(gt=0)]
    sample_rate: Annotated[int, Field(strict=True, ge=1, le=10**6)]
    frame_samples: Whole
    decode_listening: Whole
    decode_speaking: Whole
    batching: Literal["continuous", "periodic"]
    seed: Annotated[int, Field(strict=True)]
    session_length_s: Annotated[Seconds, Field(gt=0)]
    loop_samples: Annotated[int, Field(strict=True, ge=1, le=10**10)]
    audio: list[AudioFingerprint]


@dataclass(frozen=True, slots=True)
class LoadTrace:
    """Content of a file. `cut_short`: a last trial without its end was left out."""

    path: Path
    head: TraceHeader
    runs: Sequence[RecordedTrial]
    cut_short: bool


class TraceWriter:
    """Records a command's load. `tell` gets the one error when writing fails."""

    def __init__(self, path: Path, head: TraceHeader, tell: Callable[[MetronomeError], None]) -> None:
        self.path = path
        self._head = head
        self._tell = tell
        self._fd: int | None = None
        self._failed = False
        self._runs = 0

    def begin(self, head: TraceTrial) -> Callable[[TraceSession], None]:
        """Start a trial. The first one creates the file."""
        if self._fd is None:
            self._guarded(self._open)
            self._line(self._head.model_dump(mode="json", by_alias=True))
        self._line(head.model_copy(update={"trial": self._runs}).model_dump(mode="json"))
        self._runs += 1
        return lambda session: self._line(session.model_dump(mode="json"))

    def end(self, at_s: float) -> None:
        """End the trial."""
        self._line({"trial_end": self._runs - 1, "at_s": at_s})

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> None:
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def _line(self, value: dict[str, Any]) -> None:
        if self._fd is not None:
            line = dumps(value).encode("utf-8") + b"\n"
            self._guarded(lambda: self._write(line))

    def _write(self, line: bytes) -> None:
        """Write the whole line; if only a part fits, remove that part again."""
        assert self._fd is not None
        before = os.lseek(self._fd, 0, os.SEEK_CUR) if os.path.isfile(self.path) else None
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError:
            if before is not None:
                os.ftruncate(self._fd, before)
            raise

    def _guarded(self, write: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            write()
        except OSError as error:
            self._failed = True
            self._tell(
                MetronomeError(f"cannot write {self.path}: {error.strerror or error}", hint=write_hint(error))
            )
            self.close()


def check_writable(path: Path) -> None:
    """Raise UsageError if `path` cannot be written. Leaves no file behind."""
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        if not path.exists():
            with tempfile.TemporaryFile(dir=path.parent):
                return
        if not os.access(path, os.W_OK):
            raise PermissionError(None, "no permission to write")
    except OSError as error:
        raise UsageError(
            f"--record: cannot write {path}: {error.strerror or error}", hint=write_hint(error)
        ) from None


def read_load(path: Path) -> LoadTrace:
    """Read a load trace file. Raises UsageError naming the file, the line and the problem."""
    data = read_bounded(path)
    if not data:
        raise UsageError(f"{path}: an empty file", hint=_FORMAT)
    reader = _TraceReader(path)
    *lines, rest = data.split(b"\n")
    for line in lines:
        reader.take(line)
    return reader.done(torn=bool(rest))


@dataclass(slots=True)
class _TraceReader:
    """Parser of one file, line by line."""

    path: Path
    number: int = 0
    head: TraceHeader | None = None
    runs: list[RecordedTrial] = field(default_factory=list)
    _begun: int = 0
    _open: TraceTrial | None = None
    _sessions: list[TraceSession] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        self.number += 1
        try:
            value = loads(line)
        except BadJson as error:
            raise self._wrong(str(error).replace("at line 1, column", "at column")) from None
        if not isinstance(value, dict):
            raise self._wrong("not a JSON object")
        if self.head is None:
            self._take_head(value)
        elif "trial" in value:
            self._begin(self._parsed(TraceTrial, value))
        elif "session" in value:
            self._add_session(self._parsed(TraceSession, value))
        elif "trial_end" in value:
            self._end(self._parsed(TraceTrialEnd, value))
        else:
            raise self._wrong("neither a trial, nor a session, nor a trial_end")

    def _take_head(self, value: dict[str, Any]) -> None:
        found = value.get("schema")
        if found != LOAD_SCHEMA:
            stated = "no schema" if found is None else f"schema {str(found)[:60]!r}"
            raise UsageError(
                f"{self.path}:{self.number}: {stated}, where {LOAD_SCHEMA!r} is expected",
                hint=schema_hint(found, LOAD_SCHEMA),
            )
        self.head = self._parsed(TraceHeader, value)

    def _begin(self, head: TraceTrial) -> None:
        if self._open is not None:
            raise self._wrong(f"trial {head.trial} begins before trial {self._open.trial} has ended")
        if head.trial != self._begun:
            raise self._wrong(f"trial {head.trial}; {self._begun} is expected")
        self._open, self._sessions, self._begun = head, [], self._begun + 1

    def _add_session(self, session: TraceSession) -> None:
        assert self.head is not None
        sessions = self._sessions
        if self._open is None:
            raise self._wrong(f"session {session.session} belongs to no trial")
        if session.session != len(sessions):
            raise self._wrong(f"session {session.session}; {len(sessions)} is expected")
        if sessions and session.start_s < sessions[-1].start_s:
            raise self._wrong(f"start_s of session {session.session} is below that of the session before it")
        if session.loop_offset >= self.head.loop_samples:
            raise self._wrong(
                f"loop_offset {session.loop_offset} is beyond the loop, {self.head.loop_samples} samples"
            )
        if session.phase_s >= self.head.period_s:
            raise self._wrong(
                f"phase_s {session.phase_s:g} is no part of the period, {self.head.period_s:g} s"
            )
        if session.age_s > self.head.session_length_s:
            raise self._wrong(
                f"age_s {session.age_s:g} is more than a session lasts, {self.head.session_length_s:g} s"
            )
        if not any(session.turn_frames):
            raise self._wrong("turn_frames: no frames")
        sessions.append(session)

    def _end(self, end: TraceTrialEnd) -> None:
        if self._open is None or end.trial_end != self._open.trial:
            raise self._wrong(f"trial_end {end.trial_end}: that trial is not open")
        if not self._sessions:
            raise self._wrong(f"trial {end.trial_end} has no sessions")
        if end.at_s > 0:  # a trial that ended at 0 s has nothing to replay
            self.runs.append(RecordedTrial(self._open, tuple(self._sessions), end.at_s))
        self._open = None

    def done(self, *, torn: bool) -> LoadTrace:
        """Return the trace. `torn`: the last line is incomplete, as after a kill or on a full disk."""
        if self.head is None:
            raise UsageError(f"{self.path}:1: the line is not complete", hint=_FORMAT)
        if not self.runs:
            raise UsageError(
                f"{self.path}:{self.number}: ends before the first trial has ended",
                hint="the recording was cut off; record the load again",
            )
        return LoadTrace(self.path, self.head, self.runs, torn or self._open is not None)

    def _parsed(self, model: type[TraceLine], value: dict[str, Any]) -> TraceLine:
        try:
            return model.model_validate(value, strict=True)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(step) for step in found["loc"])
            raise self._wrong(f"{where[:80]}: {found['msg'][:160]}") from None

    def _wrong(self, problem: str) -> UsageError:
        return UsageError(f"{self.path}:{self.number}: {problem}", hint=_FORMAT)
