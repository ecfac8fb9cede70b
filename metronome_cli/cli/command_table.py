"""Which module holds which command. Only the one that is asked for is imported; help needs none of them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from metronome_cli.core.errors import ExitCode, UsageError

# Boxes of help need some width; below it, plain text cuts nothing short.
_COLUMNS = shutil.get_terminal_size().columns
MARKUP: Literal["rich"] | None = "rich" if _COLUMNS >= 60 else None
PLAIN_WIDTH = None if MARKUP else max(20, _COLUMNS)


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: `attribute` of `module` is its function, or a Typer app with commands of its own.

    `panel` is its group in the help; `codes` are exit codes it can end with beside those of every command.
    """

    module: str
    attribute: str
    help: str
    panel: str
    codes: tuple[ExitCode, ...] = ()


EVERY_COMMAND = (ExitCode.OK, ExitCode.INTERNAL, ExitCode.USAGE, ExitCode.SIGINT)
_JUDGED = (ExitCode.OBJECTIVE_FAILED, ExitCode.INCONCLUSIVE)

_MEASURE, _FORESEE, _READ, _SET_UP = "Measure", "Foresee", "Read and judge", "Set up"

COMMANDS: dict[str, CommandEntry] = {
    "capacity": CommandEntry(
        "metronome_cli.cli.capacity",
        "capacity",
        "How many live sessions hold every objective, and what binds.",
        _MEASURE,
        (*_JUDGED, ExitCode.SIGTERM),
    ),
    "probe": CommandEntry(
        "metronome_cli.cli.probe",
        "probe",
        "What one frame costs, and whether the bound keeps quality.",
        _MEASURE,
        (*_JUDGED, ExitCode.SIGTERM),
    ),
    "serve": CommandEntry(
        "metronome_cli.cli.serve",
        "serve",
        "A reference server with a real protocol, for trying clients.",
        _MEASURE,
    ),
    "predict": CommandEntry(
        "metronome_cli.cli.predict",
        "predict",
        "When memory runs out, how surely, and what would be safe.",
        _FORESEE,
        (*_JUDGED, ExitCode.SIGTERM),
    ),
    "report": CommandEntry(
        "metronome_cli.cli.report",
        "report",
        "Print a run's report, convert it, or rebuild it after a kill.",
        _READ,
    ),
    "compare": CommandEntry(
        "metronome_cli.cli.compare",
        "compare",
        "What changed between two runs, and whether it is too much worse.",
        _READ,
        _JUDGED,
    ),
    "profiles": CommandEntry(
        "metronome_cli.cli.profiles", "profiles", "The models that are known, and your own.", _SET_UP
    ),
    "init": CommandEntry(
        "metronome_cli.cli.init", "init", "A commented profile of your model, from its config.json.", _SET_UP
    ),
    "doctor": CommandEntry(
        "metronome_cli.cli.doctor", "doctor", "What this machine can do, and what is missing.", _SET_UP
    ),
}


def load_command(name: str) -> Any:
    """The Click command. Its function's module may define EPILOG, shown below its help."""
    entry = COMMANDS[name]
    module = import_module(entry.module)
    found = getattr(module, entry.attribute)
    app = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
        group: Any = typer.main.get_group(app)
        return group.commands[name]
    app.command(name, cls=Command, epilog=getattr(module, "EPILOG", None))(found)
    return typer.main.get_command(app)


class PlainHelp:
    """Help shows no type where nothing is to be given, and a default as it is written, not in parentheses."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if getattr(one, "is_flag", False) and one.metavar is None:
                one.metavar = ""
            if isinstance(getattr(one, "show_default", None), str):
                one._get_default_string = partial(_as_written, one.show_default)
        return found


def _as_written(text: str, **_: object) -> str:
    return text


class Command(PlainHelp, TyperCommand):
    """A command of this program. An option's former name is refused with the present one named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            given = getattr(error, "option_name", None)
            if isinstance(given, str) and hasattr(error, "possibilities"):
                raise _unknown_option(given, [name for one in self.params for name in one.opts]) from None
            raise


def _unknown_option(given: str, known: list[str]) -> UsageError:
    """The error for an option that a command does not have: what it is called now, or what may be meant."""
    from metronome_cli.config.validation import nearest
    from metronome_cli.core import renamed

    name = given.lstrip("-")
    new = renamed.option(name)
    if f"--{new}" in known:
        return UsageError(f"option {given} was renamed to --{new}", hint=f"write --{new} in its place")
    meant = next((f"--{one}" for one in renamed.SYNONYMS.get(name, ()) if f"--{one}" in known), None)
    meant = meant or (None if new else nearest(given, known))
    if new and not meant:
        return UsageError(f"option {given} was renamed to --{new}", hint="this command does not take it")
    return UsageError(
        f"there is no option {given}", hint=f"did you mean {meant}?" if meant else "--help lists the options"
    )


class Group(PlainHelp, TyperGroup):
    """A command with commands of its own."""


class LazyGroup(Group):
    """Lists commands from the registry, and imports a command's module when the command is called."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if self._listing:
            entry = COMMANDS[cmd_name]
            return TyperCommand(
                cmd_name, callback=None, help=entry.help, short_help=entry.help, rich_help_panel=entry.panel
            )
        if cmd_name not in self.commands:
            self.commands[cmd_name] = load_command(cmd_name)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:
            from metronome_cli.config.validation import unknown_hint

            raise UsageError(f"unknown command {args[0]!r}", hint=unknown_hint(args[0], COMMANDS))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False
