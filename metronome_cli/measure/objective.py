"""Objectives: what a run must hold, as text and back: "p99<80ms", "misses<0.1%", "empty<1%", "miss_streak<=3".

    metric       what it bounds                                        unit
    pQ           latency that Q % of frames stay within (p99, p99.9)   ms
    max          the slowest frame                                     ms
    misses       share of frames later than the deadline               fraction
    empty        share of answers on time with nothing in them         fraction
    occupancy    share of the pool in use, at its highest              fraction
    miss_streak  most misses of one session in a row                   count
    fell_behind  sessions whose backlog passed the profile's limit     count

    underrun     share of periods in which a listener lacked sound       fraction
    gap          longest gap in the sound of a listener                  ms
    gappy        share of answers with a gap over 100 ms                 fraction
    reply.pQ     end of the user's speech to the first sound             ms
    unanswered   share of turns without an answer                        fraction
    broken       share of answers that failed or broke off               fraction
    talked_over  share of turns that an answer began within              fraction
    reply.added  what load adds to the replies of one session            ms
    yield.pQ     barge-in to the end of the answer                       ms
    unyielding   share of barge-ins that did not end the answer in 2 s   fraction
    startled     share of backchannels that ended the answer             fraction
    rtf.pQ       time in which an answer came / its length               ratio

What each needs and what it cannot see: docs/listener.md. Every objective is an upper bound.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from metronome_cli.core import renamed
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import parse_fraction, parse_milliseconds, plain_number, shown

Unit = Literal["ms", "fraction", "count", "ratio"]
Comparator = Literal["<", "<="]

METRICS: dict[str, Unit] = {
    "max": "ms", "misses": "fraction", "empty": "fraction", "occupancy": "fraction",
    "miss_streak": "count", "fell_behind": "count",
    "underrun": "fraction", "gap": "ms", "gappy": "fraction", "unanswered": "fraction", "broken": "fraction",
    "talked_over": "fraction", "reply.added": "ms", "unyielding": "fraction", "startled": "fraction",
}  # fmt: skip
LISTENER_SHARES = ("underrun", "gappy", "unanswered", "broken", "talked_over", "unyielding", "startled")
ADDED = "reply.added"  # the median of the canary's differences between load and alone
LISTENER_TIMES: dict[str, Unit] = {"reply": "ms", "yield": "ms", "rtf": "ratio"}  # each with a percentile
_PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")  # the ones that a misspelling is compared with
_FORM = re.compile(r"\s*([^\s<>=!]*)\s*(<=|>=|==|!=|=<|=>|<|>|=)\s*(.*?)\s*", re.DOTALL)
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,4})?)", re.ASCII)
_TIME = re.compile(rf"({'|'.join(LISTENER_TIMES)})\.p(\d{{1,2}}(?:\.\d{{1,4}})?)", re.ASCII)
_RATIO = re.compile(r"\d{1,6}(?:\.\d{1,6})?", re.ASCII)
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_EXAMPLES = "such as p99<80ms, max<200ms, misses<0.1%, empty<1%, miss_streak<3"
_LEAST_MS, _MOST_MS = 1e-3, 1e9


@dataclass(frozen=True, slots=True)
class Objective:
    """An upper bound on one metric. `limit` is in `unit`: milliseconds, a fraction 0..1, a count or a ratio."""

    metric: str
    comparator: Comparator
    limit: float
    unit: Unit

    @property
    def of_listener(self) -> bool:
        """True if what a listener hears is bounded (measure/listener.py)."""
        return self.metric in LISTENER_SHARES or self.metric in ("gap", ADDED) or self.time is not None

    @property
    def time(self) -> tuple[str, float] | None:
        """The time of a turn or answer and its percentile, 0..1, such as ("reply", 0.95); None for others."""
        found = _TIME.fullmatch(self.metric)
        return None if found is None else (found[1], float(found[2]) / 100)

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Raises UsageError: unknown metric, lower bound, missing unit, a limit that nothing can meet."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise UsageError(f"{shown(text)} is not an objective", hint=_EXAMPLES)
        metric, unit = metric_and_unit(match[1], text)
        comparator = match[2]
        if comparator not in ("<", "<="):
            raise UsageError(f"objective {shown(text)}: an objective is an upper bound", hint="use < or <=")
        return cls(metric, "<" if comparator == "<" else "<=", _limit(match[3], unit, comparator, text), unit)

    def __str__(self) -> str:
        if self.unit == "fraction":
            percent = format((Decimal(repr(self.limit)) * 100).normalize(), "f")
            return f"{self.metric}{self.comparator}{percent}%"
        limit = _latency(self.limit) if self.unit == "ms" else plain_number(self.limit)
        return f"{self.metric}{self.comparator}{limit}"

    def holds(self, value: float) -> bool:
        """Whether one measured value, in the objective's unit, is within the bound."""
        return value <= self.limit if self.comparator == "<=" else value < self.limit


def _latency(limit_ms: float) -> str:
    """ "80ms", "2500ms"; whole seconds and more from 10 s on: "30s", "90s", "10m", "1h"."""
    seconds = limit_ms / 1000
    if limit_ms < 10_000 or not seconds.is_integer():
        return f"{plain_number(limit_ms)}ms"
    for unit_s, unit in ((3600, "h"), (60, "m")):
        if seconds % unit_s == 0:
            return f"{seconds / unit_s:.0f}{unit}"
    return f"{seconds:.0f}s"


def metric_and_unit(name: str, text: str = "") -> tuple[str, Unit]:
    """Canonical name and unit of a metric: "p99.90" is "p99.9". Raises UsageError if there is none."""
    if name in METRICS:
        return name, METRICS[name]
    if name in renamed.METRICS and renamed.METRICS[name] in METRICS:
        new = renamed.METRICS[name]
        raise UsageError(
            f"objective {shown(text)}: {name} was renamed to {new}", hint=text.strip().replace(name, new, 1)
        )
    percentile = _PERCENTILE.fullmatch(name)
    if percentile and float(percentile[1]) > 0:
        return "p" + plain_number(float(percentile[1])), "ms"
    time = _TIME.fullmatch(name)
    if time and float(time[2]) > 0:
        return f"{time[1]}.p{plain_number(float(time[2]))}", LISTENER_TIMES[time[1]]
    known = [*_PERCENTILES, *METRICS, *(f"{time}.p95" for time in LISTENER_TIMES)]
    near = difflib.get_close_matches(name.lower()[:20], known, n=1, cutoff=0.5)
    if name.lower() in ("p100", "pmax"):
        near = ["max"]
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"objective {shown(text)}: unknown metric {shown(name)}",
        hint=f"{hint}known: p50 to p99.99, {', '.join(METRICS)}, "
        f"{', '.join(f'{time}.p95' for time in LISTENER_TIMES)}",
    )


def _limit(value: str, unit: Unit, comparator: str, text: str) -> float:
    try:
        limit = _value(value, unit)
    except UsageError as error:
        raise UsageError(f"objective {shown(text)}: {error.message}", hint=error.hint) from None
    if unit == "ms" and not _LEAST_MS <= limit <= _MOST_MS:
        raise UsageError(f"objective {shown(text)}: a latency limit lies between 1us and 11 days")
    if unit == "fraction" and limit < 1e-9:
        raise UsageError(
            f"objective {shown(text)}: no number of frames shows that a share is zero",
            hint="bound it, such as misses<0.1%, or ask for none in the run with miss_streak<1 or fell_behind<1",
        )
    if limit == 0 and comparator == "<":
        raise UsageError(
            f"objective {shown(text)}: a count is never below 0", hint="use <=0 or <1 for none at all"
        )
    return limit


def _value(value: str, unit: Unit) -> float:
    if unit == "ms":
        return parse_milliseconds(value)
    if unit == "fraction":
        return parse_fraction(value)
    if unit == "ratio":
        if not _RATIO.fullmatch(value) or float(value) == 0:
            raise UsageError(f"{shown(value)} is not a ratio above 0", hint="give a plain number such as 0.9")
        return float(value)
    if not _COUNT.fullmatch(value):
        raise UsageError(f"{shown(value)} is not a count", hint="give a whole number such as 3")
    return float(value)
