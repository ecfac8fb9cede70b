"""The two consoles. Data on stdout, everything else on stderr.

Rich reads NO_COLOR, TERM=dumb, COLUMNS and the stream's encoding by itself. Here: a stream that cannot
encode a character writes a substitute instead of failing, nothing is read as markup unless asked, and a
reader that leaves early (`| head`) is no error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from metronome_cli.core.errors import MetronomeError, printable
from metronome_cli.core.secrets import scrub

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 100  # columns where no terminal says how many


def prepare_streams() -> None:
    """Make stdout and stderr usable, whatever they are: closed, or of an encoding that lacks characters."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def stdout() -> Console:
    """Where data goes."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Where everything else goes."""
    return _console(sys.stderr)


def _console(stream: IO[str]) -> Console:
    from rich.console import Console

    class Pipe(Console):
        """Rich would end the process with code 1 where a reader has left."""

        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704  # called where it was caught

    interactive = stream.isatty()
    width = None if interactive or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Pipe(
        file=stream, width=width, markup=False, emoji=False, highlight=False, soft_wrap=not interactive
    )


def write(text: str) -> None:
    """One text to stdout, byte for byte, with an end of line."""
    with reader_may_leave():
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def print_text(text: str) -> None:
    """Write text to stdout; characters that cannot be printed are written as escapes."""
    write(printable(text))


def show(*renderables: Any) -> None:
    """Tables and the like to stdout."""
    with reader_may_leave():
        console = stdout()
        for renderable in renderables:
            console.print(renderable)
        console.file.flush()


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Ignore a reader that closed stdout; the command keeps its exit code.

    Raises MetronomeError where it cannot be written for another reason, such as a full disk.
    """
    try:
        yield
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        silence_stdout()
        raise MetronomeError(f"cannot write to stdout: {error.strerror}") from None


@contextmanager
def kept_for_report(*, keep: bool) -> Iterator[None]:
    """Send what any code prints to stdout in here to stderr, if `keep`: libraries, threads and C code included.

    A worker that dies makes its library print, at any time; with --json stdout holds the report and nothing else.
    """
    if not keep:
        yield
        return
    kept, own = sys.stdout, _is_descriptor_1(sys.stdout)
    kept.flush()
    saved = os.dup(1) if own else -1
    try:
        sys.stdout = sys.stderr
        if own:
            os.dup2(2, 1)
        yield
    finally:
        sys.stdout = kept
        if own:
            os.dup2(saved, 1)
            os.close(saved)


def end_stdout() -> None:
    """Send whatever is printed from now on to stderr: the report is out."""
    if _is_descriptor_1(sys.stdout):
        sys.stdout.flush()
        os.dup2(2, 1)


def _is_descriptor_1(stream: IO[str]) -> bool:
    try:
        return stream.fileno() == 1
    except (OSError, ValueError):  # not a real file, as under a test
        return False


def silence_stdout() -> None:
    """Nothing reads stdout any more: what is still to come goes to the null device, the flush at exit too."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file, as under a test
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    finally:
        os.close(null)


def print_error(message: str, hint: str | None = None) -> None:
    """`error: ...`, an empty line, `hint: ...`, on stderr; coloured on a terminal that wants colour."""
    message, hint = scrub(message), scrub(hint) if hint else None
    console = stderr()
    try:
        console.print("error: ", style="bold red", end="")
        console.print(message, soft_wrap=True)
        if hint:
            console.print()
            console.print("hint: ", style="bold cyan", end="")
            console.print(hint, soft_wrap=True)
    except OSError:  # stderr is closed
        pass
