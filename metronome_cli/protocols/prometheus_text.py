"""A metrics page as samples: Prometheus' text format, or OpenMetrics if the page ends in `# EOF`.

Both are parsed by the official client library (docs/design/metrics-pages.md). OpenMetrics' own parser refuses pages
that break any of its rules; such a page is read as text, without its exemplars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from metronome_cli.core.errors import UsageError

MOST_CHARACTERS = 4_000_000  # of one page


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One line: a metric's name, its labels, its value (which may be NaN or infinite)."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse(text: str, where: str = "scrape") -> list[MetricSample]:
    """Every sample of a page. Raises UsageError for text that is no such format, naming the line."""
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"{where}: more than {MOST_CHARACTERS:,} characters", hint="is this a metrics endpoint?"
        )
    lines = text.replace("\r\n", "\n").split("\n")
    if text.rstrip().endswith("# EOF"):
        read = _samples(parse_openmetrics, text.rstrip() + "\n")
        if read is not None:
            return read
    plain = "\n".join(_without_exemplar(line) for line in lines)
    read = _samples(parse_text, plain)
    if read is None:
        raise _first_bad_line(plain.split("\n"), where)
    return read


def _samples(parser: Callable[[str], Iterable[Metric]], text: str) -> list[MetricSample] | None:
    """None for text that the parser refuses. It raises more than ValueError on some malformed pages."""
    try:
        return [
            MetricSample(sample.name, dict(sample.labels), float(sample.value))
            for family in parser(text)
            for sample in family.samples
        ]
    except (ValueError, IndexError, KeyError, AttributeError, TypeError, OverflowError):
        return None


def _without_exemplar(line: str) -> str:
    """A sample without what follows ` # {`, unless that stands inside a label's value."""
    if line.startswith("#"):
        return line
    before = line[:found] if (found := line.rfind(" # {")) > 0 else line
    quotes = before.replace("\\\\", "").replace('\\"', "").count('"')
    return before if quotes % 2 == 0 else line


def _first_bad_line(lines: list[str], where: str) -> UsageError:
    number = next((i for i, line in enumerate(lines, 1) if _samples(parse_text, line + "\n") is None), 1)
    return UsageError(
        f"{where}: line {number} is not in Prometheus' text format: {lines[number - 1].strip()[:60]!r}",
        hint="give the metrics endpoint, such as http://host:8000/metrics",
    )
