"""Every command of the program as data: path, texts, parameters and examples. Needs no terminal and runs nothing."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

from metronome_cli.cli.options import SettingOption
from metronome_cli.cli.root import command
from metronome_cli.config.settings_table import SETTINGS, Setting

_EXAMPLE = re.compile(r"^ *(metronome .*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument or an option; `setting` where a file or a variable may give it as well."""

    names: tuple[str, ...]
    value: str
    default: str
    help: str
    panel: str
    argument: bool
    setting: Setting | None


@dataclass(frozen=True, slots=True)
class CommandText:
    """One command: `path` is what is typed, such as "metronome profiles show"."""

    path: str
    help: str
    notes: str
    examples: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    click: Any = field(compare=False)

    @property
    def is_group(self) -> bool:
        return hasattr(self.click, "list_commands")


def commands() -> Iterator[CommandText]:
    """The program itself, then each command, a group's own before the next."""
    yield from _walk(command(), "metronome")


def examples() -> list[str]:
    """Every example that a command's help shows."""
    return [example for each in commands() for example in each.examples]


def words(example: str) -> list[str]:
    """The arguments of an example, without the program's name and the comment."""
    return shlex.split(example, comments=True)[1:]


def _walk(found: Any, path: str) -> Iterator[CommandText]:
    notes, shown = _epilog(found.epilog or "")
    hints = get_type_hints(inspect.unwrap(found.callback), include_extras=True) if found.callback else {}
    yield CommandText(
        path=path,
        help=inspect.cleandoc(found.help or ""),
        notes=notes,
        examples=shown,
        parameters=tuple(_parameter(one, hints) for one in found.params if not getattr(one, "hidden", False)),
        click=found,
    )
    if hasattr(found, "list_commands"):
        for name in found.list_commands(None):
            yield from _walk(found.get_command(None, name), f"{path} {name}")


def _epilog(text: str) -> tuple[str, tuple[str, ...]]:
    """Prose, and the examples below it."""
    prose, _, shown = inspect.cleandoc(text).partition("Examples:")
    return prose.strip(), tuple(_EXAMPLE.findall(shown))


def _parameter(found: Any, hints: dict[str, Any]) -> Parameter:
    own = [one for one in get_args(hints.get(found.name)) if isinstance(one, SettingOption)]
    argument = found.param_type_name == "argument"
    return Parameter(
        names=(found.metavar or found.name.upper(),) if argument else tuple(found.opts),
        value=_value(found),
        default=_default(found),
        help=str(found.help or ""),
        panel=getattr(found, "rich_help_panel", None) or ("Arguments" if argument else "Options"),
        argument=argument,
        setting=SETTINGS[own[0].row.key] if own else None,
    )


def _value(found: Any) -> str:
    """What is to be given, such as TIME; empty for a switch."""
    if getattr(found, "is_flag", False):
        return ""
    return str(found.metavar or "")


def _default(found: Any) -> str:
    """As help shows it."""
    value = found.default
    if isinstance(found.show_default, str):
        return found.show_default
    if found.required or value is None or value is False or value == ():
        return ""
    return str(getattr(value, "value", value))
