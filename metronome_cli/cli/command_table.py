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
_ALL = "metronome.help_all"
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

_MEASURE, _FORECAST, _REPORTS, _SETUP = "Measure", "Forecast", "Reports", "Setup"

COMMANDS: dict[str, CommandEntry] = {
    "capacity": CommandEntry(
        "metronome_cli.cli.capacity",
        "capacity",
        "Measure how many live sessions hold every objective, and what limits them.",
        _MEASURE,
        (*_JUDGED, ExitCode.SIGTERM),
    ),
    "probe": CommandEntry(
        "metronome_cli.cli.probe",
        "probe",
        "Measure the cost of a frame, and the quality under a bounded cache.",
        _MEASURE,
        (*_JUDGED, ExitCode.SIGTERM),
    ),
    "serve": CommandEntry(
        "metronome_cli.cli.serve",
        "serve",
        "Run a reference server with a real protocol, for trying clients.",
        _MEASURE,
    ),
    "predict": CommandEntry(
        "metronome_cli.cli.predict",
        "predict",
        "Forecast when memory runs out, with what probability, and how many fit.",
        _FORECAST,
        (*_JUDGED, ExitCode.SIGTERM),
    ),
    "report": CommandEntry(
        "metronome_cli.cli.report",
        "report",
        "Print or convert the report of a run, or rebuild it from its events.",
        _REPORTS,
    ),
    "compare": CommandEntry(
        "metronome_cli.cli.compare",
        "compare",
        "Compare two runs, and fail if one is worse than allowed.",
        _REPORTS,
        _JUDGED,
    ),
    "profiles": CommandEntry(
        "metronome_cli.cli.profiles", "profiles", "List, show and check profiles of models.", _SETUP
    ),
    "init": CommandEntry(
        "metronome_cli.cli.init",
        "init",
        "Write a commented profile of your model from its config.json.",
        _SETUP,
    ),
    "doctor": CommandEntry(
        "metronome_cli.cli.doctor", "doctor", "Check what this machine can run, and what is missing.", _SETUP
    ),
}


def load_command(name: str) -> Any:
    """The Click command. Its module may define EPILOG, shown below its help, and ESSENTIAL,
    the options of the short help."""
    entry = COMMANDS[name]
    module = import_module(entry.module)
    found = getattr(module, entry.attribute)
    app = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
        group: Any = typer.main.get_group(app)
        return group.commands[name]
    cls = short_help(*module.ESSENTIAL) if hasattr(module, "ESSENTIAL") else Command
    app.command(name, cls=cls, epilog=getattr(module, "EPILOG", None))(found)
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
    """A command of this program. An option's former name is refused with the present one named.

    If `essential` names parameters, `--help` shows those, and `--help-all` shows all.
    """

    essential: tuple[str, ...] = ()

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        if self.essential:
            self.epilog = f"`--help-all` shows all {len(self.params)} options.\n\n{self.epilog or ''}"

    def format_help(self, ctx: Any, formatter: Any) -> None:
        whole = ctx.meta.get(_ALL) or not self.essential
        left_out: list[Any] = [] if whole else [one for one in self.params if one.name not in self.essential]
        for one in left_out:
            one.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for one in left_out:
                one.hidden = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.essential and "--help-all" in args:
            ctx.meta[_ALL], args = True, ["--help"]
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            given = getattr(error, "option_name", None)
            if isinstance(given, str) and hasattr(error, "possibilities"):
                names = [name for one in self.params for name in one.opts]
                raise _unknown_option(given, names, ctx.command_path) from None
            raise


def short_help(*names: str) -> type[Command]:
    """A command whose `--help` shows these parameters only."""
    return type("ShortCommand", (Command,), {"essential": names})


def _unknown_option(given: str, known: list[str], path: str) -> UsageError:
    """The error for an option that a command does not have: what it is called now, or what may be meant."""
    from metronome_cli.config.validation import nearest
    from metronome_cli.core import renamed

    name = given.lstrip("-")
    if path.split()[1:2] == ["predict"] and name in renamed.PREDICT_COMMANDS:
        command = renamed.PREDICT_COMMANDS[name]
        return UsageError(f"option {given} became a command", hint=f"metronome {command}")
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


class DefaultGroup(Group):
    """A group in which `default` may be left out: options right after the group's name are those of `default`."""

    default = ""
    alone = True  # whether the group's name alone runs `default`

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        completing = ctx.resilient_parsing and not args
        own = bool(args) and (args[0] in self.commands or args[0] in ("-h", "--help"))
        if not completing and not own and (args[:1] != [] or self.alone):
            if args and not args[0].startswith("-"):
                self._check_command(args[0])
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _check_command(self, name: str) -> None:
        """Raises UsageError if `name` cannot be an argument of the default command."""
        if not any(one.param_type_name == "argument" for one in self.commands[self.default].params):
            from metronome_cli.config.validation import unknown_hint

            raise UsageError(f"unknown command {name!r}", hint=unknown_hint(name, self.commands))

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands, and the options of the default."""
        found = super().shell_complete(ctx, incomplete)
        return found + (
            self.commands[self.default].shell_complete(ctx, incomplete) if incomplete[:1] == "-" else []
        )


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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:  # `metronome help predict` is `metronome predict --help`
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

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
