"""Checks `adapter_options` of a profile. An error for an unknown key names the nearest known key."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError

OptionValue = int | float | str | bool
T = TypeVar("T", int, float, str, bool)
_LARGEST = 10**9


class AdapterOptions:
    """Options of a profile, merged over an adapter's defaults. A default's type is the type of the option."""

    def __init__(self, profile: Profile, defaults: Mapping[str, OptionValue]) -> None:
        self._where = f"profile {profile.name}: adapter_options"
        for key, value in profile.adapter_options.items():
            self._check(key, value, defaults)
        self._values = {**defaults, **profile.adapter_options}

    def flag(self, key: str) -> bool:
        return bool(self._values[key])

    def number(self, key: str) -> int:
        return int(self._values[key])

    def real(self, key: str) -> float:
        return float(self._values[key])

    def choice(self, key: str, *allowed: str) -> str:
        """Return the value if it is one of `allowed`. Raises UsageError otherwise."""
        value = str(self._values[key])
        if value not in allowed:
            raise UsageError(f"{self._where}.{key} is {value!r}", hint=f"one of: {', '.join(allowed)}")
        return value

    def _check(self, key: str, value: OptionValue, defaults: Mapping[str, OptionValue]) -> None:
        if key not in defaults:
            near = get_close_matches(key, defaults, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(defaults)}"
            raise UsageError(f"{self._where}: unknown key {key!r}", hint=hint)
        default = defaults[key]
        if isinstance(default, bool) != isinstance(value, bool):
            raise UsageError(f"{self._where}.{key} is {value!r}; {_kind(default)} is needed")
        if isinstance(default, str) != isinstance(value, str):
            raise UsageError(f"{self._where}.{key} is {value!r}; {_kind(default)} is needed")
        if isinstance(default, int) and not isinstance(default, bool) and value != int(value):
            raise UsageError(f"{self._where}.{key} is {value!r}; {_kind(default)} is needed")
        if not isinstance(value, str | bool) and not 0 <= value <= _LARGEST:
            raise UsageError(f"{self._where}.{key} is {value!r}; it takes 0 to {_LARGEST}")


def _kind(default: OptionValue) -> str:
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, str):
        return "a word"
    return "a whole number" if isinstance(default, int) else "a number"
