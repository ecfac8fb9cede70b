"""Quantities with units, both ways: "80ms" <-> 0.08 s, "2GiB" <-> 2147483648 bytes, "10m" <-> 600 s.

Durations are seconds (float), sizes are bytes (int), rates are per second, fractions are 0..1.
A bare number is refused where its unit would be a guess. Arithmetic is decimal until the end, so that a
printed value parses back to the same number.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from metronome_cli.core.errors import UsageError

DURATION_UNITS = {
    unit: Decimal(seconds)
    for unit, seconds in {
        "ns": "1e-9", "us": "1e-6", "ms": "1e-3", "s": "1", "m": "60", "min": "60", "h": "3600", "d": "86400",
    }.items()
}  # fmt: skip
SIZE_UNITS = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
LONGEST_S = 10**9  # about 32 years
LARGEST_BYTES = 2**60
MOST_PER_S = 10**6
_NUMBER_UNIT = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-zµμ%]*)", re.ASCII)
_MAX_LENGTH = 40
_HINTS = {
    "duration": "give a number and a unit: 80ms, 2s, 10m, 1h30m",
    "size": "give a number and a unit: 512MiB, 2GiB, 96GB",
    "fraction": "give a percentage such as 1% or a fraction such as 0.01",
    "rate": "give events per unit of time: 2.5/s, 150/m",
}


def _terms(text: str) -> list[tuple[Decimal, str]] | None:
    """ "1h30m" -> [(1, "h"), (30, "m")]; None when it is not a sequence of number-unit pairs."""
    text = text.strip().replace("µ", "u").replace("μ", "u").replace("_", "")
    if not text or len(text) > _MAX_LENGTH:
        return None
    terms, end = [], 0
    for match in _NUMBER_UNIT.finditer(text):
        if text[end : match.start()].strip():
            return None
        terms.append((Decimal(match[1]), match[2]))
        end = match.end()
    return terms if terms and not text[end:].strip() else None


def shown(value: object, most: int = 60) -> str:
    """A user's value as an error repeats it: quoted, on one line, no longer than `most` characters."""
    text = repr(value[: most + 1] if isinstance(value, str) else value)
    return text if len(text) <= most else text[: most - 3] + "..."


def _bad(kind: str, text: str, why: str = "") -> UsageError:
    return UsageError(f"{shown(text)} is not a {kind}{why}", hint=_HINTS[kind])


def _seconds(text: str) -> Decimal:
    terms = _terms(text)
    if terms is None or any(unit not in DURATION_UNITS for _, unit in terms):
        raise _bad("duration", text)
    seconds = sum((value * DURATION_UNITS[unit] for value, unit in terms), Decimal())
    if seconds > LONGEST_S:
        raise _bad("duration", text, ": it is longer than 30 years")
    return seconds


def parse_duration(text: str) -> float:
    """Seconds in "80ms", "2s", "10m", "1h30m". Raises UsageError when a unit is missing or unknown."""
    return float(_seconds(text))


def parse_milliseconds(text: str) -> float:
    """Milliseconds in the same forms, exact where `parse_duration(text) * 1e3` would round twice."""
    return float(_seconds(text) * 1000)


def parse_size(text: str) -> int:
    """Bytes in "512MiB", "96GB", "2GiB". Raises UsageError when a unit is missing or unknown."""
    terms = _terms(text)
    if terms is None or len(terms) != 1 or terms[0][1] not in SIZE_UNITS:
        raise _bad("size", text)
    size = round(terms[0][0] * SIZE_UNITS[terms[0][1]])
    if size > LARGEST_BYTES:
        raise _bad("size", text, ": it is more than 2^60 bytes")
    return size


def parse_fraction(text: str) -> float:
    """0..1 in "1%" or "0.01". Raises UsageError outside that range."""
    terms = _terms(text)
    if terms is None or len(terms) != 1 or terms[0][1] not in ("", "%"):
        raise _bad("fraction", text)
    value = terms[0][0] / (100 if terms[0][1] == "%" else 1)
    if value > 1:
        raise _bad("fraction", text, ": it is more than 1")
    return float(value)


def parse_rate(text: str) -> float:
    """Events per second in "2.5/s" or "150/m"."""
    number, slash, unit = text.partition("/")
    terms = _terms(number)
    if not slash or terms is None or len(terms) != 1 or terms[0][1] or unit.strip() not in DURATION_UNITS:
        raise _bad("rate", text)
    rate = terms[0][0] / DURATION_UNITS[unit.strip()]
    if rate > MOST_PER_S:
        raise _bad("rate", text, ": it is more than a million a second")
    return float(rate)


def plain_number(value: float) -> str:
    """Shortest decimal without an exponent that parses back to the same float: 80, 0.001, 99.9."""
    text = format(Decimal(repr(float(value))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def digits(value: float, count: int) -> str:
    """So many significant digits of a finite value, and never an exponent: "0.00094", "12", "1230"."""
    return plain_number(float(f"{value:.{count}g}") + 0.0)  # without the sign of -0.0


def _trim(value: float) -> str:
    return digits(value, 3) if abs(value) < 999.5 else f"{value:,.0f}"


def format_duration(seconds: float) -> str:
    """Shortest readable form: "61 ms", "2.5 s", "10 min", "1 h 30 min"; also "for ever" and "unknown"."""
    if not math.isfinite(seconds):
        return "unknown" if math.isnan(seconds) else "for ever"
    if seconds < 0:
        return "-" + format_duration(-seconds)
    for limit, factor, unit in ((0.9995e-3, 1e6, "us"), (0.9995, 1e3, "ms"), (119.95, 1.0, "s")):
        if seconds < limit:
            return f"{_trim(seconds * factor)} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h" + (f" {minutes} min" if minutes else "")


def format_size(size: float) -> str:
    """Binary units, three digits: "168 MiB", "1.46 GiB"."""
    if not math.isfinite(size):
        return "unknown" if math.isnan(size) else "unlimited"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1023.5:
            return f"{_trim(size)} {unit}"
        size /= 1024
    return f"{_trim(size)} TiB"
