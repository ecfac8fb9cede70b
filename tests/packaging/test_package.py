"""What is shipped, and that files which must agree do."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from metronome_cli import __version__
from metronome_cli.cli.command_table import COMMANDS, load_command
from metronome_cli.config.model_shape import CacheStage
from metronome_cli.config.profile import Profile
from metronome_cli.config.settings_docs import settings_page
from metronome_cli.config.settings_table import SETTINGS
from metronome_cli.config.validation import _models_in
from metronome_cli.core.errors import ExitCode
from metronome_cli.core.package_data import data_dir

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()


def commands_of(text: str) -> list[str]:
    """Lines of a Markdown text's code blocks."""
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def test_the_test_command_of_the_readme_is_what_ci_runs() -> None:
    (command,) = [line for line in commands_of(README) if "pytest" in line]
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_first_command_installs_and_runs_the_main_job() -> None:
    first = commands_of(README)[0]
    assert first == "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/metronome capacity"


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_ci_can_be_run() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_the_version_is_said_once() -> None:
    assert PROJECT["project"]["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_profiles_and_speech_go_into_the_package_where_they_are_looked_for() -> None:
    (target,) = [
        one for one in PROJECT["tool"]["hatch"]["build"]["targets"].values() if "force-include" in one
    ]
    included = target["force-include"]
    for name in ("profiles", "sample_audio"):
        assert included[name] == f"metronome_cli/_data/{name}"
        assert any(data_dir(name).iterdir())


def test_torch_stays_within_the_range_that_was_tried() -> None:
    (torch,) = [need for need in PROJECT["project"]["dependencies"] if need.startswith("torch")]
    assert torch == "torch>=2.9,<2.14"


def test_the_licence_is_the_declared_one() -> None:
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_settings_are_documented_as_they_are() -> None:
    assert (ROOT / "docs" / "environment.md").read_text() == settings_page()


def test_settings_have_the_flags_that_they_claim() -> None:
    found = {option for name in COMMANDS for option in options(load_command(name))}
    assert {row.flag for row in SETTINGS.values() if row.on_command_line} <= found
    assert not {row.flag for row in SETTINGS.values() if not row.on_command_line} & found


def options(command: object) -> list[str]:
    own = [option for parameter in getattr(command, "params", []) for option in parameter.opts]
    return own + [option for inner in getattr(command, "commands", {}).values() for option in options(inner)]


@pytest.mark.parametrize("code", ExitCode)
def test_exit_codes_are_documented(code: ExitCode) -> None:
    assert f"| {code.value} | `{code.name}` |" in (ROOT / "docs" / "exit-codes.md").read_text()


def keys(model: type, prefix: str = "") -> list[str]:
    """Dotted keys of a schema, lists of parts left out."""
    found = []
    for name, field in model.model_fields.items():  # type: ignore[attr-defined]
        inner = next(_models_in(field.annotation), None)
        nested = inner is not None and "tuple" not in str(field.annotation)
        found += keys(inner, f"{prefix}{name}.") if inner is not None and nested else [prefix + name]
    return found


def test_every_key_of_a_profile_is_documented() -> None:
    page = (ROOT / "docs" / "profiles.md").read_text()
    general, stages = page.split("## Stages")
    for key in keys(Profile):
        assert f"`{key}`" in general, key
    for key in keys(CacheStage):
        assert f"`{key}`" in stages or key.startswith("pool."), key
