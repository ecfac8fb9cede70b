"""The command line's root: global options and the group of commands."""

from __future__ import annotations

import contextlib
import platform
import sys
from importlib import metadata
from typing import Annotated, Any

import typer

from metronome_cli import __version__
from metronome_cli.cli.command_table import MARKUP, PLAIN_WIDTH, LazyGroup
from metronome_cli.cli.console import write
from metronome_cli.core.version import build

HELP = """How many live speech sessions this model on this machine can hold, for how long, and what stops it first.

Start with `metronome capacity`: it needs no GPU and no download."""
EPILOG = """Exit codes: 0 objectives held, 1 internal error, 2 usage, 3 objective failed, 4 inconclusive, \
130 and 143 interrupted.

Examples:

  metronome capacity --audio calls/  # how many sessions this machine holds

  metronome predict --profile qwen3-omni-30b --sessions 128 --session-length 5m  # when memory ends

  metronome doctor  # is this machine fit to measure on?
"""

app = typer.Typer(
    name="metronome",
    cls=LazyGroup,
    help=HELP,
    epilog=EPILOG,
    rich_markup_mode=MARKUP,
    context_settings={"help_option_names": ["-h", "--help"], "terminal_width": PLAIN_WIDTH},
    pretty_exceptions_enable=False,
)


def version_line() -> str:
    """Versions of metronome, torch and Python, and the build; torch is asked for its metadata, not imported."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "not installed"
    commit = build()
    known = f", build {commit}" if commit else ""
    return f"metronome {__version__} (torch {torch}, Python {platform.python_version()}{known})"


def _show_version(wanted: bool) -> None:
    if wanted:
        write(version_line())
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show versions and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        with contextlib.redirect_stdout(sys.stderr):  # Rich's help prints itself
            typer.echo(ctx.get_help())
        raise typer.Exit(2)


def command() -> Any:
    """The Click command of the whole program."""
    return typer.main.get_command(app)
