"""Every error a user can cause, and the exit code that each one means.

    MetronomeError
    ├── UsageError          bad flag, profile, objective, file           exit 2
    │   └── NoAudioError    nothing usable among the audio files         exit 2
    ├── EngineError         the engine under test failed                 exit 1
    │   └── DeviceMemoryError   the device's memory was not enough       exit 1
    └── StoppedError        stopped before anything was measured         exit 130, 143

A run that is interrupted raises nothing: it ends with a report that says so (exit 130 after SIGINT, 143 after SIGTERM).
`exit_code_for` and `exit_code_of` in this module are the only place that maps outcomes to codes.
"""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import Literal

Verdict = Literal["pass", "fail", "inconclusive"]
Status = Literal["complete", "interrupted", "failed"]


class ExitCode(IntEnum):
    """Process exit codes; `MEANINGS` says each for users."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    OBJECTIVE_FAILED = 3
    INCONCLUSIVE = 4
    SIGINT = 130
    SIGTERM = 143


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "Every objective held, or there was nothing to judge.",
    ExitCode.INTERNAL: "Something broke that is not your doing: the engine under test, a server that does not "
    "answer, the program itself, or a full disk.",
    ExitCode.USAGE: "A flag, a profile, a settings file, a variable, an objective or a file is wrong. Nothing was "
    "measured.",
    ExitCode.OBJECTIVE_FAILED: "An objective was refuted, or what was asked for cannot be held.",
    ExitCode.INCONCLUSIVE: "Neither proved nor refuted: too few samples, a run that drifted, a load generator that "
    "was late, or metrics that were watched and never came.",
    ExitCode.SIGINT: "Interrupted with Ctrl-C. What was measured until then is in the report, marked as interrupted.",
    ExitCode.SIGTERM: "Asked to end. As above.",
}


class MetronomeError(Exception):
    """Base of every designed error: a message, and a hint that says what to do.

    Both may quote untrusted text and go to a terminal, so unprintable characters become escapes.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = printable(message)
        self.hint = None if hint is None else printable(hint)
        super().__init__(self.message)


def printable(text: str) -> str:
    """Control codes, lone surrogates and marks of direction as escapes; lines stay lines."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


class UsageError(MetronomeError):
    """The user's input is wrong: names the key or file, what is allowed, and a hint."""


class NoAudioError(UsageError):
    """No audio file was usable."""


class EngineError(MetronomeError):
    """The engine under test failed; what was measured before stays valid."""


class DeviceMemoryError(EngineError):
    """The device's memory was not enough for what was asked; less may fit."""


class StoppedError(MetronomeError):
    """The user stopped the command before there was anything to report."""

    def __init__(self, message: str, signum: int | None) -> None:
        super().__init__(message)
        self.signum = signum


def write_hint(error: OSError) -> str:
    """What helps where the system would not write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room there, or give another place"
    return "give a path that can be written"


def exit_code_for(status: Status, verdict: Verdict | None, *, signum: int | None = None) -> ExitCode:
    """The exit code of a finished run; the one function that owns the mapping."""
    if status == "interrupted":
        return ExitCode.SIGTERM if signum == 15 else ExitCode.SIGINT
    if status == "failed":
        return ExitCode.INTERNAL
    return {
        "pass": ExitCode.OK,
        "fail": ExitCode.OBJECTIVE_FAILED,
        "inconclusive": ExitCode.INCONCLUSIVE,
        None: ExitCode.OK,
    }[verdict]


def exit_code_of(error: MetronomeError) -> ExitCode:
    """The exit code of a command that ended with a designed error before it had a report."""
    if isinstance(error, StoppedError):
        return exit_code_for("interrupted", None, signum=error.signum)
    return ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.INTERNAL
