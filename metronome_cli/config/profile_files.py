"""Profiles by name or by file: `load_profile("moshi")`, `load_profile("mine.yaml")`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from metronome_cli.config.profile import Profile
from metronome_cli.config.validation import nearest, validate
from metronome_cli.config.yaml_file import read_yaml
from metronome_cli.core.errors import UsageError
from metronome_cli.core.package_data import data_dir
from metronome_cli.core.quantities import shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUFFIXES = (".yaml", ".yml")


def load_profile(name_or_path: str | os.PathLike[str]) -> Profile:
    """A shipped profile by its name, or the one in a YAML file (a path, or a name ending in .yaml).

    Raises UsageError naming the file, the key, the value and what is allowed.
    """
    return validate(Profile, read_yaml(path := profile_path(name_or_path)), str(path))


def profile_path(name_or_path: str | os.PathLike[str]) -> Path:
    """The file that `load_profile` reads. Raises UsageError for a name that is not shipped."""
    text = os.fspath(name_or_path)
    if not text.strip():
        raise UsageError("the profile has no name", hint="metronome profiles list")
    if isinstance(name_or_path, os.PathLike) or not _NAME.fullmatch(text) or text.endswith(_SUFFIXES):
        return Path(text)
    shipped = data_dir("profiles") / f"{text}.yaml"
    if shipped.is_file():
        return shipped
    near = nearest(text, profile_names())
    hint = f"did you mean {near}? " if near else ""
    raise UsageError(
        f"no profile is called {shown(text)}",
        hint=f"{hint}`metronome profiles list` names them; a file needs its path, such as ./{text}.yaml",
    )


def profile_names() -> list[str]:
    """Names of the shipped profiles: default and smoke first, then by name."""
    names = {path.stem for path in data_dir("profiles").glob("*.yaml")}
    first = [name for name in ("default", "smoke") if name in names]
    return first + sorted(names - set(first))


def list_profiles() -> list[Profile]:
    """Every shipped profile, in the order of `profile_names`."""
    return [load_profile(name) for name in profile_names()]
