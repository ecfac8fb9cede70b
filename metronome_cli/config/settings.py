"""Who decides a setting: default < profile < --config file < METRONOME_* < flag.

config/settings_table.py has the settings. One that the profile also has, such as `policy`, overrides it there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metronome_cli.config.fields import PLAIN_NUMBERS
from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import load_profile
from metronome_cli.config.readers import read_as
from metronome_cli.config.settings_table import OTHER_VARIABLES, PREFIX, SETTINGS, Setting
from metronome_cli.config.validation import unknown_hint, validate
from metronome_cli.config.yaml_file import read_yaml
from metronome_cli.core import renamed
from metronome_cli.core.errors import UsageError
from metronome_cli.measure.objective import Objective


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting's value, and who gave it: a flag, a variable, a file, "profile NAME" or "default"."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one command, resolved. `profile` has every override in it."""

    profile: Profile
    values: Mapping[str, SettingValue]

    def __getitem__(self, key: str) -> Any:
        return self.values[key].value

    def given(self, key: str) -> bool:
        """Whether a flag, a variable or a settings file gave it."""
        return self.values[key].origin not in ("default", f"profile {self.profile.name}")

    def flagged(self, key: str) -> bool:
        """Whether a flag gave it: a file or a variable may serve several commands, a flag is for this one."""
        return self.values[key].origin == SETTINGS[key].flag

    def as_dict(self) -> dict[str, object]:
        """For a report: {key: {"value": ..., "from": ...}}, those without a value left out."""
        return {
            key: {"value": _plain(value.value), "from": value.origin}
            for key, value in self.values.items()
            if value.value is not None
        }


def resolve(
    flags: Mapping[str, object],
    environ: Mapping[str, str] | None = None,
    *,
    from_model: Callable[[str], Profile] | None = None,
) -> Settings:
    """Settings from all sources. `flags`: by key, None, False and empty for one that was not given.

    `config` among them is the settings file. `from_model` makes a profile of a decoder, in a command that
    takes one. Raises UsageError naming source, key and what is allowed.
    """
    environ = os.environ if environ is None else environ
    given: dict[str, SettingValue] = {}
    config = flags.get("config") or environ.get(PREFIX + "CONFIG", "").strip()
    if config:
        given |= _from_file(Path(str(config)))
    given |= _from_environment(environ)
    given |= _from_flags(flags)
    profile = _override(_base_profile(given, from_model), given)
    return Settings(
        profile, {key: given.get(key) or _fallback(row, profile) for key, row in SETTINGS.items()}
    )


def _base_profile(given: Mapping[str, SettingValue], from_model: Callable[[str], Profile] | None) -> Profile:
    """The named profile, or that of a decoder."""
    model = given.get("model")
    if model is None:
        return load_profile(given["profile"].value if "profile" in given else SETTINGS["profile"].default)
    if "profile" in given:
        raise UsageError(f"{model.origin} and {given['profile'].origin} both say what runs", hint="give one")
    if from_model is None:
        raise UsageError(f"{model.origin}: this command runs no model", hint="give a profile")
    return from_model(model.value)


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Every METRONOME_* variable that means nothing, with what may have been meant."""
    known = {row.variable for row in SETTINGS.values()} | set(OTHER_VARIABLES)
    return {
        name: f"it was renamed to {PREFIX}{new.upper()}"
        if (new := renamed.setting(name.removeprefix(PREFIX).lower()))
        else unknown_hint(name, known)
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in known
    }


def _from_file(path: Path) -> dict[str, SettingValue]:
    found = {}
    for key, given in read_yaml(path).items():
        if key not in SETTINGS:
            if new := renamed.setting(str(key)):
                raise UsageError(
                    f"{path}: key {key!r} was renamed to {new!r}", hint=f"write {new} in its place"
                )
            raise UsageError(f"{path}: unknown key {key!r}", hint=unknown_hint(key, SETTINGS))
        if given is not None:
            found[key] = _read(SETTINGS[key], given, str(path), key)
    return found


def _from_environment(environ: Mapping[str, str]) -> dict[str, SettingValue]:
    for name, hint in unknown_variables(environ).items():
        raise UsageError(f"unknown environment variable {name}", hint=hint)
    return {
        key: _read(row, environ[row.variable], row.variable)
        for key, row in SETTINGS.items()
        if environ.get(row.variable, "").strip()
    }


def _from_flags(flags: Mapping[str, object]) -> dict[str, SettingValue]:
    return {
        key: _read(SETTINGS[key], given, SETTINGS[key].flag)
        for key, given in flags.items()
        if key != "config" and given is not None and given is not False and given not in ([], ())
    }


def _read(row: Setting, given: object, origin: str, key: str = "") -> SettingValue:
    return SettingValue(read_as(f"{origin}: {key}" if key else origin, row.read, given), origin)


def _override(profile: Profile, given: Mapping[str, SettingValue]) -> Profile:
    """The profile with what was given above it."""
    above = {key: value for key, value in given.items() if SETTINGS[key].profile_key}
    if not above:
        return profile
    data = profile.model_dump(mode="json")
    for key, value in above.items():
        _put(data, str(SETTINGS[key].profile_key), _plain(value.value))
    origins = ", ".join(sorted({value.origin for value in above.values()}))
    return validate(Profile, data, f"profile {profile.name} with {origins}", PLAIN_NUMBERS)


def _put(data: dict[str, Any], dotted: str, value: object) -> None:
    head, _, tail = dotted.partition(".")
    if head == "kv_pool":
        data["kv_pool"] = (data.get("kv_pool") or {}) | {"bytes": value, "blocks": None}
    elif tail:
        data[head] = data[head] | {tail: value}
    else:
        data[head] = value


def _fallback(row: Setting, profile: Profile) -> SettingValue:
    """The profile's value, else the default."""
    if row.profile_key:
        found: Any = profile
        for part in row.profile_key.split("."):
            found = getattr(found, part, None)
        if row.key == "slo":
            found = tuple(Objective.parse(text) for text in found)
        if found is not None:
            return SettingValue(found, f"profile {profile.name}")
    return SettingValue(row.default, "default")


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path | Objective) else value
