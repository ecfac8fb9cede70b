"""The four tiles at the head of a page: a figure, what it is, and whether it is good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metronome_cli.core.formatting import (
    NO_DATA,
    duration,
    format_measured,
    format_ms,
    format_probability,
    number,
    percent,
    plural,
)
from metronome_cli.report.html.deadline import deadline_of
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.run_report import Report


@dataclass(frozen=True, slots=True)
class Tile:
    """`kind`: pass, fail, inconclusive, or empty if it is neither good nor bad."""

    name: str
    value: str
    note: str = ""
    kind: str = ""


def tiles_of(report: Report) -> Sequence[Tile]:
    """Four tiles, or none for a report that has nothing to show in them."""
    if report.capacity is not None and not report.policy_runs:
        return _capacity(report)
    if report.fleet is not None:
        return _fleet(report)
    if report.forecast is not None:
        return _forecast(report)
    quality = report.probe.quality if report.probe else None
    if quality is not None and quality.recommended is not None:
        best = quality.recommended
        return (
            Tile(
                "Smallest equivalent window",
                best.name,
                f"of {plural(len(quality.variants), 'variant')}",
                "pass",
            ),
            Tile("Cache per session", format_bytes(best.bytes_per_session)),
            Tile("Tested up to", f"{best.tested_up_to_tokens:,} tokens"),
            Tile("Margin", percent(quality.margin), "relative loss of perplexity"),
        )
    return ()


def format_bytes(size: int | None) -> str:
    """ "12 MiB", "-" for no data."""
    from metronome_cli.core.quantities import format_size

    return NO_DATA if size is None else format_size(size)


def _capacity(report: Report) -> Sequence[Tile]:
    capacity = report.capacity
    assert capacity is not None
    safe, breaks = capacity.safe_sessions, capacity.lowest_failing_sessions
    at = _judged(capacity.trials, safe) or (capacity.trials[-1] if capacity.trials else None)
    deadline_ms = deadline_of(report)
    p99 = at.latency_ms.p99 if at else None
    share = (
        ""
        if p99 is None or not deadline_ms
        else f"{p99 / deadline_ms:.0%} of {format_measured(deadline_ms, 'ms')}"
    )
    over = p99 is not None and deadline_ms is not None and p99 > deadline_ms
    nothing = report.verdict or ""
    return (
        Tile(
            "Safe sessions",
            NO_DATA if safe is None else f"{safe:,}",
            f"for {duration(capacity.session_length_s)}",
            nothing if safe is None else "pass",
        ),
        Tile("Limited by", capacity.limited_by.replace("_", " "), capacity.slowest_stage or ""),
        Tile(
            "p99 latency",
            NO_DATA if p99 is None else f"{format_ms(p99)} ms",
            f"{share}, at {plural(at.sessions, 'session')}" if at and share else "",
            "" if p99 is None else "fail" if over else "pass",
        ),
        Tile(
            "Breaks at",
            "not found" if breaks is None else f"{breaks:,}",
            "" if breaks is None else "sessions failed",
            "" if breaks is None else "fail",
        ),
    )


def _judged(trials: Sequence[TrialResult], sessions: int | None) -> TrialResult | None:
    """The trial of that number with most evidence that is no screening."""
    found = [trial for trial in trials if trial.sessions == sessions and trial.purpose != "screen"]
    return max(found, key=lambda trial: trial.batches, default=None)


def _forecast(report: Report) -> Sequence[Tile]:
    given = report.forecast
    assert given is not None
    span = given.fill_time_s
    interval = "" if None in (span.low, span.high) else f"{duration(span.low)} to {duration(span.high)}"
    return (
        Tile("Pool full after", duration(span.estimate) if span.estimate is not None else "never", interval),
        Tile("At most", NO_DATA if given.max_sessions is None else f"{given.max_sessions:,}", "sessions"),
        Tile("Limited by", given.limited_by.replace("_", " "), given.first_hazard if given.hazards else ""),
        Tile("Full before the end", format_probability(given.collapse_probability), "probability"),
    )


def _fleet(report: Report) -> Sequence[Tile]:
    fleet = report.fleet
    assert fleet is not None
    size = next((each for each in fleet.sizes if each.gpus == fleet.gpus_needed), None)
    return (
        Tile("GPUs needed", f"{fleet.gpus_needed:,}", f"{fleet.gpus_with_spare_node:,} with a spare node"),
        Tile("Sessions per GPU", f"{fleet.sessions_per_gpu:,}", f"{percent(fleet.headroom)} headroom"),
        Tile(
            "Blocking", percent(size.blocking) if size else NO_DATA, f"at most {percent(fleet.max_blocking)}"
        ),
        Tile("Offered load", number(fleet.offered_erlangs), "sessions on average"),
    )
