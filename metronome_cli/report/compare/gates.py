"""`--fail-on METRIC:CHANGE`: the change for the worse at which a comparison fails, as text and back.

`p99:5%` fails when p99 rises by 5 % or more, `p99:3ms` when it rises by 3 ms or more, `safe_sessions:-1`
when it falls by 1 or more, `misses:0.1%` when the share of misses rises by 0.1 points: for a share, `%`
means points.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from metronome_cli.core import renamed
from metronome_cli.core.errors import UsageError
from metronome_cli.report.compare.compared_metrics import METRICS, ComparedMetric, find_metric

_CHANGE = re.compile(r"([+-]?)(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*([A-Za-z%]*)", re.ASCII)
_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_EXAMPLES = "such as p99:5%, p99:3ms, misses:0.1%, safe_sessions:-1, safe_sessions:-5%"


@dataclass(frozen=True, slots=True)
class Gate:
    """`limit` is positive, for the worse: a fraction of the base where `relative`, else in the metric's unit."""

    text: str
    metric: ComparedMetric
    limit: float
    relative: bool

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Raises UsageError: unknown metric, no change, a change for the better, a unit that is not its own."""
        name, colon, change = text.partition(":")
        metric = find_metric(name.strip())
        if metric is None:
            if new := renamed.METRICS.get(name.strip()):
                raise UsageError(
                    f"--fail-on {text[:60]!r}: {name.strip()} was renamed to {new}",
                    hint=f"--fail-on {new}:CHANGE",
                )
            near = difflib.get_close_matches(name.strip()[:30], METRICS, n=1)
            raise UsageError(
                f"--fail-on {text[:60]!r}: unknown metric {name.strip()[:30]!r}",
                hint=(f"did you mean {near[0]}? " if near else "")
                + f"known: {', '.join(METRICS)}, stage.NAME",
            )
        match = _CHANGE.fullmatch(change.strip()) if colon else None
        if match is None or float(match[2]) == 0:
            raise UsageError(f"--fail-on {text[:60]!r} names no change", hint=_EXAMPLES)
        _check_direction(text, metric, match[1])
        limit, relative = _limit(text, metric, float(match[2]), match[3])
        return cls(f"{metric.name}:{change.strip()}", metric, limit, relative)


def _check_direction(text: str, metric: ComparedMetric, sign: str) -> None:
    if (metric.better == "higher") != (sign == "-"):
        worse, example = ("rise", "5%") if metric.better == "lower" else ("fall", "-5%")
        raise UsageError(
            f"--fail-on {text[:60]!r}: {metric.name} gets worse when it {worse}s",
            hint=f"give a {worse}, such as {metric.name}:{example}",
        )


def _limit(text: str, metric: ComparedMetric, value: float, unit: str) -> tuple[float, bool]:
    if unit == "%":
        return (value / 100, metric.unit != "fraction")
    if metric.unit == "ms" and unit in _MS:
        return value * _MS[unit], False
    if metric.unit == "s" and unit in _MS:
        return value * _MS[unit] / 1e3, False
    if metric.unit in ("count", "fraction") and not unit:
        return value, False
    wanted = {"ms": "% or ms", "s": "% or s", "count": "% or no unit", "fraction": "% (points)"}[metric.unit]
    raise UsageError(
        f"--fail-on {text[:60]!r}: {metric.name} does not change by {unit or 'a bare number'}",
        hint=f"give {wanted}",
    )
