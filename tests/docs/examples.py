"""Commands in the pages and in the help, and how each is read without being run."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from metronome_cli.cli.command_tree import examples
from metronome_cli.cli.options import SettingOption
from metronome_cli.cli.root import command
from metronome_cli.commands.predict.predict_flags import read_options, takes
from metronome_cli.config.profile_files import load_profile
from metronome_cli.report.compare.gates import Gate

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_PROGRAM = re.compile(r"(?:^|.*&& |.*[|] ?)(?:\$ )?(?:\.venv/bin/)?metronome(?= |$)(.*)")
_INLINE = re.compile(r"`metronome ([^`]+)`")
_OPERATOR = re.compile(r"[|&;<>()]+")
_LEFT_OUT = ("...", "COMMAND", "[OPTIONS]")


@dataclass(frozen=True, slots=True)
class Example:
    """`words` are the arguments; `complete` False where prose names only the beginning of a command."""

    where: str
    words: tuple[str, ...]
    complete: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {shlex.join(self.words)}"


def every_example() -> list[Example]:
    """Those of the help first, then page by page."""
    of_help = [Example("help", tuple(arguments(text.removeprefix("metronome")))) for text in examples()]
    return of_help + [example for page in PAGES for example in page_examples(page)]


def page_examples(page: Path) -> Iterator[Example]:
    """Commands in code blocks, and those that a sentence names."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    where = str(page.relative_to(ROOT))
    fenced = False
    for line in text.splitlines():
        fenced ^= line.strip().startswith("```")
        if fenced or line.startswith("    "):
            if found := _PROGRAM.match(line.strip()):
                yield from _kept(Example(where, tuple(arguments(found[1]))))
        else:
            for inline in _INLINE.findall(line):
                yield from _kept(Example(where, tuple(arguments(inline)), complete=False))


def arguments(text: str) -> list[str]:
    """Words up to the first operator of the shell; a variable of the shell becomes 1."""
    lexer = shlex.shlex(re.sub(r"\$\w+", "1", text), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] = []
    for word in lexer:
        if _OPERATOR.fullmatch(word):
            break
        found.append(word)
    return found


def check(example: Example) -> None:
    """Raises where a command or an option is not known, or a value is not allowed. Runs nothing."""
    found, rest, path = _leaf(command(), list(example.words))
    if (
        not example.complete
        or hasattr(found, "list_commands")
        or {"--help", "--help-all", "--version"} & set(rest)
    ):
        known = {name for one in found.params for name in one.opts} | {"--help", "--help-all"}
        unknown = [word for word in rest if word.startswith("--") and word not in known]
        assert not unknown, f"{path} has no {unknown}"
        return
    context = found.make_context(path, rest)
    _check_values(found, context.params, path)


def _leaf(found: Any, rest: list[str]) -> tuple[Any, list[str], str]:
    path = ["metronome"]
    while hasattr(found, "list_commands") and (rest or getattr(found, "default", "")):
        if rest and rest[0].startswith("-") and (len(path) == 1 or rest[0] in ("--help", "-h", "--help-all")):
            break
        names = found.list_commands(None)
        name = rest.pop(0) if rest and rest[0] in names else getattr(found, "default", "")
        assert name, f"{' '.join(path)} has no command {rest[0]!r}"
        found = found.get_command(None, name)
        path.append(name)
    return found, rest, " ".join(path)


def _check_values(found: Any, given: dict[str, Any], path: str) -> None:
    hints = get_type_hints(inspect.unwrap(found.callback), include_extras=True)
    for key, value in given.items():
        for option in get_args(hints[key]):
            if isinstance(option, SettingOption) and value not in (None, False, (), [], "both"):
                option.row.read(value)
                if option.row.key == "profile" and not value.endswith(".yaml"):
                    load_profile(value)
    if path.split()[1:2] == ["predict"]:
        read_options("profile", {key: given[key] for key in takes(given)})
    if found.name == "compare":
        for gate in given["fail_on"] or ():
            Gate.parse(gate)


def _kept(example: Example) -> Iterator[Example]:
    if not any(word in example.words for word in _LEFT_OUT):
        yield example
