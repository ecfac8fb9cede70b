"""Quantities with units, both ways: "80ms" <-> 0.08 s, "2GiB" <-> 2147483648 bytes, "10m" <-> 600 s.

Durations are seconds (float), sizes are bytes (int), rates are per second, fractions are 0..1.
A bare number is refused where its unit would be a guess.
"""

from __future__ import annotations

import math
import re

from metronome_cli.errors import UsageError

DURATION_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SIZE_UNITS = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_NUMBER_UNIT = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-zµ%]*)", re.ASCII)
_MAX_DIGITS = 40


def _terms(text: str) -> list[tuple[float, str]] | None:
    """ "1h30m" -> [(1.0, "h"), (30.0, "m")]; None when it is not a sequence of number-unit pairs."""
    text = text.strip().replace("µ", "u").replace("_", "")
    if not text or len(text) > _MAX_DIGITS:
        return None
    terms, end = [], 0
    for match in _NUMBER_UNIT.finditer(text):
        if text[end : match.start()].strip():
            return None
        terms.append((float(match[1]), match[2]))
        end = match.end()
    return terms if terms and not text[end:].strip() else None


def _bad(kind: str, text: object, hint: str) -> UsageError:
    return UsageError(f"{text!r} is not a {kind}", hint=hint)


def parse_duration(text: str) -> float:
    """Seconds in "80ms", "2s", "10m", "1h30m". Raises UsageError when a unit is missing or unknown."""
    hint = "give a number and a unit: 80ms, 2s, 10m, 1h30m"
    terms = _terms(text)
    if terms is None or any(unit not in DURATION_UNITS for _, unit in terms):
        raise _bad("duration", text, hint)
    seconds = sum(value * DURATION_UNITS[unit] for value, unit in terms)
    if not math.isfinite(seconds):
        raise _bad("duration", text, hint)
    return seconds


def parse_size(text: str) -> int:
    """Bytes in "512MiB", "96GB", "2GiB". Raises UsageError when a unit is missing or unknown."""
    hint = "give a number and a unit: 512MiB, 2GiB, 96GB"
    terms = _terms(text)
    if terms is None or len(terms) != 1 or terms[0][1] not in SIZE_UNITS:
        raise _bad("size", text, hint)
    return round(terms[0][0] * SIZE_UNITS[terms[0][1]])


def parse_fraction(text: str) -> float:
    """0..1 in "1%" or "0.01". Raises UsageError outside that range."""
    hint = "give a percentage such as 1% or a fraction such as 0.01"
    terms = _terms(text)
    if terms is None or len(terms) != 1 or terms[0][1] not in ("", "%"):
        raise _bad("fraction", text, hint)
    value = terms[0][0] / (100.0 if terms[0][1] == "%" else 1.0)
    if value > 1.0:
        raise _bad("fraction", text, hint)
    return value


def parse_rate(text: str) -> float:
    """Events per second in "2.5/s" or "150/m"."""
    number, slash, unit = text.partition("/")
    terms = _terms(number)
    if not slash or terms is None or len(terms) != 1 or terms[0][1] or unit.strip() not in DURATION_UNITS:
        raise _bad("rate", text, "give events per unit of time: 2.5/s, 150/m")
    return terms[0][0] / DURATION_UNITS[unit.strip()]


def _trim(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def format_duration(seconds: float) -> str:
    """Shortest readable form: "61 ms", "2.5 s", "10 min", "1 h 30 min"."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    for limit, factor, unit in ((1e-3, 1e6, "us"), (0.9995, 1e3, "ms"), (119.95, 1.0, "s")):
        if seconds < limit:
            return f"{_trim(seconds * factor)} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")


def format_size(size: float) -> str:
    """Binary units, three digits: "168 MiB", "1.46 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{_trim(size)} {unit}"
        size /= 1024
    return f"{_trim(size)} TiB"
