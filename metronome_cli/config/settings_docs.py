"""docs/environment.md, made from the table of settings: `python -m metronome_cli.config.settings_docs`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from metronome_cli.config.settings_table import OTHER_VARIABLES, SETTINGS

_HEAD = """# Settings and environment variables

Every setting can be given in five places. The later one wins:

1. its default,
2. the profile (those that a profile has: the last column says under which key),
3. a settings file: `--config FILE`, or the file that `METRONOME_CONFIG` names,
4. an environment variable,
5. a flag.

A settings file is YAML with the keys below, quantities with their units:

    profile: moshi
    policy: window(1024, 16)
    session_length: 10m
    slo: [p99<80ms, empty<1%]

A key that is not known, and an environment variable that begins with `METRONOME_` and is not known, is an error
that names the nearest known one. An empty variable counts as not given. Lists are YAML lists in a file; in a
variable, objectives are separated by commas and paths by colons, as in `PATH`. A path in a file is relative to
where the command runs. Every report lists its settings and where each came from.

| key | flag | variable | meaning | default | profile key |
| --- | --- | --- | --- | --- | --- |
"""
_OTHER = """
Some more variables are no settings:

| variable | meaning |
| --- | --- |
"""
_TERMINAL = """| `NO_COLOR` | anything: no colour; `TERM=dumb` also takes away cursor movement |
| `COLUMNS` | width of the output; without it that of the terminal, 100 in a pipe |

A command takes the flags that concern it, `--help` lists them; in a file or variable the others are accepted and
left alone, so that one file serves all commands.

This page is made from the program: `python -m metronome_cli.config.settings_docs`.
"""


def settings_page() -> str:
    """The whole page."""
    others = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in OTHER_VARIABLES.items())
    return _HEAD + "".join(_rows()) + _OTHER + others + _TERMINAL


def _rows() -> Iterator[str]:
    for row in SETTINGS.values():
        key = f"`{row.profile_key}`" if row.profile_key else ""
        flag = f"`{row.flag}`" if row.on_command_line else ""
        meaning = row.help.replace("|", "\\|")
        cells = (f"`{row.key}`", flag, f"`{row.variable}`", meaning, row.default_text or "none", key)
        yield f"| {' | '.join(cells)} |\n"


def main() -> None:
    """Write the page of a source tree."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    (docs / "environment.md").write_text(settings_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
