"""Prometheus' text format, as far as a scrape of gauges and counters needs it.

A line is `name{label="value",...} number [timestamp]`; lines that begin with # are comments. Label values
escape backslash, quote and newline. Numbers may be NaN, +Inf or -Inf. (The official client library would
parse the same lines; its parser is a dependency for forty lines of code, and reads exemplars and types that
nothing here uses.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from metronome_cli.core.errors import UsageError

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+(\S+))?(?:\s+#.*)?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_LONGEST = 4_000_000  # characters of one scrape


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One line: a metric's name, its labels, its value (which may be NaN or infinite)."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse(text: str, where: str = "scrape") -> list[MetricSample]:
    """Every sample of a scrape. Raises UsageError for text that is no such format, naming the line."""
    if len(text) > _LONGEST:
        raise UsageError(f"{where}: more than {_LONGEST:,} characters", hint="is this a metrics endpoint?")
    return list(_samples(text, where))


def _samples(text: str, where: str) -> Iterator[MetricSample]:
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        value = None if match is None else _number(match[3])
        if match is None or value is None:
            raise UsageError(
                f"{where}: line {number} is not in Prometheus' text format: {line[:60]!r}",
                hint="give the metrics endpoint, such as http://host:8000/metrics",
            )
        yield MetricSample(match[1], _labels(match[2] or ""), value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _labels(text: str) -> dict[str, str]:
    return {
        match[1]: re.sub(r'\\[\\"n]', lambda escape: _ESCAPES[escape[0]], match[2])
        for match in _LABEL.finditer(text)
    }
