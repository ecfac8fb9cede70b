"""Which package may import which, and where Typer, Rich and torch may be imported: one table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import metronome_cli

ROOT = Path(metronome_cli.__file__).parent
ALLOWED = {  # besides `core` and the package itself
    "cli": "commands capacity probe server report ui results config protocols backends measure audio load",
    "commands": "capacity probe server report backends models forecast engine load audio protocols results "
    "config measure",
    "capacity": "backends forecast load audio results config measure",
    "probe": "backends models engine audio forecast load results config measure",
    "server": "backends protocols load audio results config measure",
    "report": "results config measure",
    "ui": "results config measure",
    "backends": "models engine protocols forecast load audio results config measure",
    "models": "engine config",
    "forecast": "load protocols results config measure",
    "engine": "config",
    "load": "results config measure",
    "audio": "results config",
    "protocols": "",
    "results": "config measure",
    "config": "measure",
    "measure": "",
    "core": "",
}
LIBRARIES = {  # library: packages or modules that may import it
    "typer": ("cli",),
    "rich": ("cli", "ui"),
    "torch": ("engine", "models", "backends", "probe", "measure.environment"),
}


def modules() -> Iterator[tuple[str, set[str]]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        found |= {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
        yield name, found


MODULES = list(modules())


def test_every_package_has_a_row() -> None:
    assert {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()} == set(ALLOWED)


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_those_of_its_row(package: str) -> None:
    allowed = {package, "core", *ALLOWED[package].split()}
    wrong = [
        f"{name} imports {one}"
        for name, found in MODULES
        if name.split(".")[0] == package
        for one in found
        if one.startswith("metronome_cli.") and one.split(".")[1] not in allowed
    ]
    assert not wrong


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_imported_in_its_place(library: str) -> None:
    wrong = [
        name
        for name, found in MODULES
        if any(one.split(".")[0] == library for one in found) and not name.startswith(LIBRARIES[library])
    ]
    assert not wrong
