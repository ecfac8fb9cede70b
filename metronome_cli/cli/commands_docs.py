"""docs/commands.md, made from the program: `python -m metronome_cli.cli.commands_docs`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from metronome_cli.cli.command_table import COMMANDS, EVERY_COMMAND
from metronome_cli.cli.command_tree import CommandText, Parameter, commands
from metronome_cli.core.errors import MEANINGS, ExitCode

VALUES = {
    "TIME": "`80ms`, `2s`, `10m`, `1h30m`; a bare number is refused",
    "SIZE": "`512MiB`, `2GiB`, `96GB`; a bare number is refused",
    "SHARE": "`1%` or `0.01`",
    "RATE": "`2.5/s`, `150/m`",
    "N": "a whole number",
    "SHARES": "`mute:5%,dead:2%,reset:2%,stall:1%`, at most half of all",
    "LENGTHS": "`exp:3m`, `lognormal:3m,0.8` or `fixed:3m`: distribution and mean",
    "WORD": "one of the words that its meaning lists",
    "POLICY": "`unbounded`, `window(W, S)`, `ring(W)` or `recycle(W)`, W and S in tokens; quote it in a shell",
    "OBJECTIVE": "`p99<80ms`, `max<200ms`, `misses<0.1%`, `empty<1%`, `occupancy<90%`, `miss_streak<3`; quote it",
    "GATE": "`p99:5%`, `safe_sessions:-1`; [continuous integration](ci.md) lists the metrics",
    "ADDRESS": "`:9464` on this machine alone, or `HOST:PORT`",
}
_HEAD = """# Commands

    metronome COMMAND [OPTIONS]

`metronome COMMAND --help` shows the same in the terminal. Results go to stdout, everything else to stderr. A
variable of the tables below gives an option's value where the flag does not; [settings](environment.md) says which
source wins. `--version` shows the versions of metronome, torch and Python.

Values have units:

| value | examples |
| --- | --- |
"""
_CODES = """
## Exit codes

| code | name | meaning |
| --- | --- | --- |
"""
_COMPLETION = """
[More on them](exit-codes.md).

## Completion

    metronome --install-completion      # for bash, zsh, fish or PowerShell, whichever it is called from
    metronome --show-completion         # the script itself, to put where you like

It completes commands, options, names of profiles, policies and the words of options; files where it knows nothing
better. The program starts for each completion and loads neither torch nor a model.
"""
_FOOT = "\nThis page is made from the program: `python -m metronome_cli.cli.commands_docs`.\n"


def commands_page() -> str:
    """The whole page."""
    values = "".join(f"| {name} | {shown} |\n" for name, shown in VALUES.items())
    codes = "".join(f"| {code.value} | `{code.name}` | {MEANINGS[code]} |\n" for code in ExitCode)
    _, *parts = commands()
    sections = "".join("\n" + "\n".join(_section(part)) + "\n" for part in parts)
    return _HEAD + values + sections + _CODES + codes + _COMPLETION + _FOOT


def _section(part: CommandText) -> Iterator[str]:
    yield f"{'#' * len(part.path.split())} {part.path}\n"
    yield part.help
    if part.is_group:
        return
    if part.notes:
        yield f"\n{part.notes}"
    yield f"\n    {usage(part)}"
    panels = list(dict.fromkeys(one.panel for one in part.parameters))
    for panel in panels:
        yield from _table(panel, [one for one in part.parameters if one.panel == panel])
    if part.examples:
        yield "\nExamples:\n"
        yield from (f"    {example}" for example in part.examples)
    yield f"\nExit codes: {', '.join(str(code.value) for code in exit_codes(part.path))}."


def usage(part: CommandText) -> str:
    """What is typed, arguments in capitals."""
    arguments = [one.names[0] for one in part.parameters if one.argument]
    return " ".join([part.path, *arguments, "[OPTIONS]"])


def exit_codes(path: str) -> list[ExitCode]:
    """Codes that this command can end with."""
    return sorted((*EVERY_COMMAND, *COMMANDS[path.split()[1]].codes))


def _table(panel: str, found: list[Parameter]) -> Iterator[str]:
    if found[0].argument:
        yield "\n| argument | meaning |\n| --- | --- |"
        yield from (f"| `{one.names[0]}` | {_cell(one.help)} |" for one in found)
        return
    yield f"\n{panel}:\n\n| option | value | default | variable | meaning |\n| --- | --- | --- | --- | --- |"
    for one in found:
        names = ", ".join(f"`{name}`" for name in one.names)
        variable = f"`{one.setting.variable}`" if one.setting else ""
        yield f"| {names} | {one.value} | {one.default} | {variable} | {_cell(one.help)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write the page of a source tree."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    (docs / "commands.md").write_text(commands_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
