"""The command line: parse, call one function, render, map the result to an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from metronome_cli.core.errors import ExitCode, MetronomeError, UsageError, exit_code_of, write_hint

# The system would not even look: the path that was given is at fault, or who may go there.
_BAD_PATHS = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of `metronome`. Never shows a traceback unless METRONOME_DEBUG=1."""
    from metronome_cli.cli.console import prepare_streams

    prepare_streams()
    code = run(sys.argv[1:] if argv is None else argv)
    sys.exit(max(code, _flush()))


def run(argv: Sequence[str]) -> int:
    """The exit code of one call. A command returns its code, or None for 0."""
    from metronome_cli.cli.console import print_error, silence_stdout

    try:
        from metronome_cli.cli.root import command

        _check_directory()
        result = command().main(args=list(argv), prog_name="metronome", standalone_mode=False)
        return result if isinstance(result, int) else ExitCode.OK
    except MetronomeError as error:
        print_error(error.message, error.hint)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return ExitCode.SIGINT
    except (BrokenPipeError, SystemExit):  # the reader closed the pipe; Rich raises the latter
        silence_stdout()
        return ExitCode.OK
    except Exception as error:
        return _unexpected(error)


def _check_directory() -> None:
    """Libraries die without a word where the working directory was deleted. Raises UsageError there."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(f"the working directory: {error.strerror}", hint="go to one that exists") from None


def _unexpected(error: Exception) -> int:
    """Typer's own complaints are usage errors; anything else is ours."""
    import typer

    from metronome_cli.cli.console import print_error

    if isinstance(error, typer.Abort):
        return ExitCode.SIGINT
    complaint: Any = error
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        print_error(complaint.format_message(), _try_help(complaint))
        return ExitCode.USAGE
    if isinstance(error, OSError):
        if error.errno == errno.ENOSPC:
            print_error(
                f"cannot write {error.filename or 'the output'}: {error.strerror}",
                write_hint(error),
            )
            return ExitCode.INTERNAL
        if error.errno in _BAD_PATHS and error.filename:
            print_error(
                f"{error.filename}: {error.strerror}", "check the path, and who may read and write there"
            )
            return ExitCode.USAGE
    if os.environ.get("METRONOME_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    said = " ".join(str(error).split())[:300]
    print_error(
        f"internal: {type(error).__name__}{': ' + said if said else ''}",
        "set METRONOME_DEBUG=1 to see the traceback, and please report it",
    )
    return ExitCode.INTERNAL


def _try_help(complaint: Any) -> str | None:
    context = getattr(complaint, "ctx", None)
    return f"see `{context.command_path} --help`" if context is not None else None


def _flush() -> int:
    """Flush stdout while an error can still be reported; return 0 if it worked or the reader is gone."""
    from metronome_cli.cli.console import print_error, silence_stdout

    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        silence_stdout()
        print_error(f"cannot write to stdout: {error.strerror}")
        return ExitCode.INTERNAL
    return 0
