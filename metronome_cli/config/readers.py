"""Reading one setting's value, whether it came as text (flag, variable) or as YAML (file).

Each reader takes what was given and returns the value in its own type, or raises UsageError saying what is
allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.validation import nearest
from metronome_cli.core import renamed
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import parse_duration, parse_fraction, parse_rate, parse_size, shown
from metronome_cli.measure.objective import Objective

ValueReader = Callable[[Any], Any]
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_MOST = 10**9


def read_as(name: str, read: ValueReader, given: Any) -> Any:
    """What was given for `name`, a flag or whatever gave it, which is said where it is wrong."""
    try:
        return read(given)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", hint=error.hint) from None


def text(given: Any) -> str:
    """Text that is not empty."""
    if not isinstance(given, str) or not given.strip():
        raise UsageError(f"{shown(given)} is not a name")
    return given.strip()


def flag(given: Any) -> bool:
    """true or false, in YAML or in words."""
    if isinstance(given, bool):
        return given
    word = str(given).strip().lower()
    if word not in _TRUE + _FALSE:
        raise UsageError(f"{shown(given)} is neither true nor false", hint="use true or false")
    return word in _TRUE


def whole(least: int = 0) -> ValueReader:
    """A whole number of at least `least`."""

    def read(given: Any) -> int:
        digits = str(given).strip().replace("_", "")
        if isinstance(given, bool | float) or not (digits.isascii() and digits.isdigit()):
            raise UsageError(f"{shown(given)} is not a whole number", hint=f"a whole number from {least} on")
        if len(digits) > 20 or not least <= int(digits) <= _MOST:
            raise UsageError(f"{shown(given)} is out of range", hint=f"from {least} to {_MOST:,}")
        return int(digits)

    return read


@dataclass(frozen=True, slots=True)
class ChoiceReader:
    """One of a few words."""

    words: tuple[str, ...]

    def __call__(self, given: Any) -> str:
        word = str(given).strip()
        if word not in self.words:
            if renamed.VALUES.get(word) in self.words:
                raise UsageError(f"{word} was renamed to {renamed.VALUES[word]}")
            near = nearest(word, self.words)
            hint = f"did you mean {near}? " if near else ""
            raise UsageError(f"{shown(given)} is not known", hint=f"{hint}one of: {', '.join(self.words)}")
        return word


def choice(*words: str) -> ChoiceReader:
    """A reader of one of these words."""
    return ChoiceReader(words)


def path(given: Any) -> Path:
    """A path; whether anything is there is not looked at here."""
    if not isinstance(given, str | Path) or not str(given).strip() or "\0" in str(given):
        raise UsageError(f"{shown(given)} is not a path")
    return Path(given)


def several(read: ValueReader, separator: str) -> ValueReader:
    """A list of such values; in a variable they stand in one text with `separator` between them."""

    def read_all(given: Any) -> tuple[Any, ...]:
        if isinstance(given, str):
            given = [part for part in given.split(separator) if part.strip()]
        elif not isinstance(given, list | tuple):
            given = [given]
        return tuple(read(one) for one in given)

    return read_all


def duration(given: Any) -> float:
    """Seconds, more than none."""
    seconds = parse_duration(_quantity(given, "80ms, 10m"))
    if seconds <= 0:
        raise UsageError(f"{shown(given)} is no time at all", hint="give more than zero, such as 10m")
    return seconds


def delay(given: Any) -> float:
    """Seconds, 0 included."""
    return parse_duration(_quantity(given, "0ms, 120ms"))


def size(given: Any) -> int:
    """Bytes, more than none."""
    count = parse_size(_quantity(given, "2GiB, 96GB"))
    if count <= 0:
        raise UsageError(f"{shown(given)} is no memory at all", hint="give more than zero, such as 2GiB")
    return count


def fraction(given: Any) -> float:
    """0..1."""
    return parse_fraction(str(given))


def rate(given: Any) -> float:
    """Events per second, more than none."""
    each_s = parse_rate(_quantity(given, "2.5/s, 150/m"))
    if each_s <= 0:
        raise UsageError(f"{shown(given)} is no rate at all", hint="give more than zero, such as 2.5/s")
    return each_s


def address(given: Any) -> tuple[str, int]:
    """Where to listen: HOST:PORT, or :PORT on this machine alone. Port 0 is any free one."""
    host, colon, port = str(given).strip().rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536):
        raise UsageError(f"{shown(given)} is not an address", hint="give :9464 or HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host or "127.0.0.1", int(port)


def argument(given: Any) -> str:
    """KEY=VALUE, as text."""
    key, equals, _ = str(given).partition("=")
    if not (equals and key.strip()):
        raise UsageError(f"{shown(given)} is not key=value", hint="such as tensor_parallel_size=2")
    return str(given).strip()


def policy(given: Any) -> str:
    """A cache policy in its canonical form."""
    return str(CachePolicySpec.parse(str(given)))


def objective(given: Any) -> Objective:
    """One objective."""
    return Objective.parse(str(given))


def _quantity(given: Any, examples: str) -> str:
    if not isinstance(given, str):
        raise UsageError(f"{shown(given)} has no unit", hint=f"give a number and a unit: {examples}")
    return given
