"""Numbers as every view writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from metronome_cli.core.quantities import digits, format_duration, plain_number

NO_DATA = "-"
LONG_MS = 10_000  # from here on a latency is read in seconds and more


def format_ms(value: float | None) -> str:
    """ "61", "4.2", "0.31": milliseconds without their unit."""
    if value is None:
        return NO_DATA
    return f"{value:,.0f}" if value >= 10 else digits(value, 2)


def percent(share: float | None) -> str:
    """ "41 %"; "1.4 %" below 10 %, ">99 %" where rounding would say full, "<0.001 %" for the least."""
    if share is None:
        return NO_DATA
    value = share * 100
    if 99.5 <= value < 100:
        return ">99 %"
    if 0 < value < 0.001:
        return "<0.001 %"
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{digits(value, 2)} %"


def format_probability(share: float | None) -> str:
    """An estimated probability, which is never quite none or all: "41 %", "<0.1 %", ">99.9 %"."""
    if share is None:
        return NO_DATA
    if not 0.001 <= share <= 0.999:
        return "<0.1 %" if share < 0.5 else ">99.9 %"
    return f"{share * 100:.1f} %" if share >= 0.995 else percent(share)


def time_line(progress: float | None, eta_s: float | None, elapsed_s: float, budget_s: float | None) -> str:
    """How far a command is: "44 % done, about 12 s left"; a search's time: "28 s of the 40 s it has"."""
    if budget_s is not None:
        of = format_seconds(budget_s)
        if elapsed_s > budget_s:
            return f"{format_seconds(elapsed_s)}, past the {of} it had: ends as soon as it has an answer"
        return f"{format_seconds(elapsed_s)} of the {of} it has"
    if progress is None:
        return f"{format_seconds(elapsed_s)} elapsed"
    left = f", about {format_seconds(eta_s)} left" if eta_s is not None else ""
    return f"{percent(progress)} done{left}"


def format_seconds(seconds: float | None) -> str:
    """ "47 s", "3 min 20 s": whole seconds, as progress wants them."""
    if seconds is None:
        return NO_DATA
    return format_duration(round(seconds)) if seconds >= 0.5 else "0 s"


def format_utc(when: datetime) -> str:
    """ "2026-11-30 02:45:10 UTC": an instant of the wall clock, to the second."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_limit(value: float | None) -> str:
    """The controller's cap in whole sessions, as it is applied."""
    return NO_DATA if value is None else f"{int(value):,}"


def plural(count: int, noun: str) -> str:
    """ "1 miss", "2 misses"; "0 empty" stays as it is."""
    if count == 1 or noun == "empty":
        return f"{count:,} {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith('s') else 's'}"


def collapse_line(data: dict[str, Any]) -> str:
    """ "collapse at 2 min 28 s: KV pool 100 % full, 0 running, 128 waiting"."""
    run, at = f"{data['policy_run']}: " if data.get("policy_run") else "", format_time(data.get("t_s", 0.0))
    if not any(data.get(key) for key in ("occupancy", "running", "waiting")):  # a server that is not scraped
        return f"{run}collapse at {at}: no session produced output"
    full = percent(data.get("occupancy"))
    sessions = f"{data.get('running', 0)} running, {data.get('waiting', 0)} waiting"
    return f"{run}collapse at {at}: KV pool {full} full, {sessions}"


def number(value: float | None) -> str:
    """ "1,205", "0.25", "-" for no data: any figure without a unit."""
    if value is None:
        return NO_DATA
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return digits(value, 4)


def duration(seconds: float | None) -> str:
    """ "2.5 s", "10 min", "-" for no data."""
    return NO_DATA if seconds is None else format_duration(seconds)


def format_time(seconds: float | None) -> str:
    """ "4.3 s", "2 min 28 s": an instant of a run, counted from its begin."""
    if seconds is None:
        return NO_DATA
    tenths = round(seconds, 1)
    return f"{digits(tenths, 4)} s" if 0 <= tenths < 1 else duration(tenths)


def format_measured(value: float | None, unit: str) -> str:
    """A figure in an objective's unit: "61 ms", "0.3 %", "12"."""
    if value is None:
        return NO_DATA
    if unit == "ms":
        return f"{format_ms(value)} ms" if value < LONG_MS else duration(value / 1e3)
    if unit == "ratio":
        return f"{value:.3g}"
    return percent(value) if unit in ("fraction", "%") else number(value)


def format_bound(limit: float, unit: str) -> str:
    """A limit as it was given, without rounding: "80 ms", "62.5 ms", "0.15 %", "1 h"."""
    if unit == "ms":
        return f"{plain_number(limit)} ms" if limit < LONG_MS else duration(limit / 1e3)
    if unit == "ratio":
        return plain_number(limit)
    return f"{plain_number(round(limit * 100, 9))} %" if unit in ("fraction", "%") else number(limit)


def sessions(count: int | None) -> str:
    """ "24 sessions", "1 session"."""
    return NO_DATA if count is None else plural(count, "session")
