"""What pages point at is there: links, pictures, flags, variables and profiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from metronome_cli.cli.command_tree import commands
from metronome_cli.config.profile_files import profile_names
from metronome_cli.config.settings_table import OTHER_VARIABLES, SETTINGS
from tests.docs.examples import PAGES, ROOT

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FLAG = re.compile(r"`(--[a-z][a-z0-9-]*)")
_VARIABLE = re.compile(r"METRONOME_[A-Z_]*[A-Z]")
_PROFILE = re.compile(r"metronome [a-z ]*--profile ([a-z0-9.-]+)")
CODE = re.compile(r"^(```.*?^```|    .*?$)", re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_and_variables_are_the_programs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    flags = {name for each in commands() for one in each.parameters for name in one.names}
    assert set(_FLAG.findall(text)) <= flags | {"--help", "--help-all", "--version"}
    assert set(_VARIABLE.findall(text)) <= {row.variable for row in SETTINGS.values()} | set(OTHER_VARIABLES)
    named = {name for name in _PROFILE.findall(text) if not name.endswith(".yaml")}
    assert named <= set(profile_names())


def test_pictures_are_small_and_used() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size < 200_000, picture.name
        assert picture.name in text
