"""Tables of `probe quality`: each (W, S) beside unbounded, perplexity as a session ages, free decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metronome_cli.core.formatting import NO_DATA, number, percent
from metronome_cli.core.quantities import digits, format_size
from metronome_cli.report.tables.table import Column, Table
from metronome_cli.results.quality_result import (
    BreakdownResult,
    EstimateResult,
    PerplexityByAge,
    QualityResult,
    QualityVariant,
)
from metronome_cli.results.run_report import Report

_AGES = 10  # columns of the table by age


def quality_tables(report: Report) -> list[Table]:
    """All of them; none without the part."""
    part = report.probe.quality if report.probe else None
    return [] if part is None else [standings(part), answers(part), by_age(part), spoken(part)]


def standings(part: QualityResult) -> Table:
    """Every variant, what it costs a session, and how it stands beside unbounded."""
    columns = [Column("keeps", text=True), Column("a session", 8), Column("perplexity", 7), Column("excess"),
               Column("90 % interval", 3), Column("tested to", 5), Column("stands", text=True),
               Column("why", 6, text=True)]  # fmt: skip
    rows = [
        [one.name, NO_DATA if one.bytes_per_session is None else format_size(one.bytes_per_session),
         _perplexity(one.perplexity), _excess(one.excess_loss_nats), _interval(one.excess_loss_nats),
         number(one.tested_up_to_tokens),
         one.standing, one.why]
        for one in part.variants
    ]  # fmt: skip
    return Table("Quality beside unbounded", columns, rows)


def answers(part: QualityResult) -> Table:
    """Questions with their context in the window."""
    columns = [Column("keeps", text=True), Column("turns", 6), Column("right"), Column("between", 5),
               Column("agrees", 7), Column("ended", 4), Column("reference nats", 6), Column("excess", 8),
               Column("frames dropped", 7), Column("steps late", 7)]  # fmt: skip
    rows = [
        [one.name, number(turns.turns), _share(turns.keywords), _shares(turns.keywords), _share(turns.agreement),
         _share(turns.ended), _nats(turns.reference_loss), _excess(turns.excess_loss_nats),
         number(turns.dropped_frames), percent(turns.late_step_share)]
        for one in part.variants
        if (turns := one.turns) is not None
    ]  # fmt: skip
    return Table("Questions answered", columns, rows)


def by_age(part: QualityResult) -> Table:
    """Perplexity of the text by age of the session, in tokens."""
    ages = [stretch.age for stretch in _longest(part.variants)]
    kept = ages[:: -(-len(ages) // _AGES)] if ages else []
    columns = [Column("keeps", text=True), *(Column(number(age), 8 - at % 3) for at, age in enumerate(kept))]
    rows = []
    for one in part.variants:
        found = {stretch.age: stretch.perplexity for stretch in one.by_age}
        if found:
            rows.append([one.name, *(_perplexity(found.get(age)) for age in kept)])
    return Table("Perplexity by age in tokens", columns, rows)


def spoken(part: QualityResult) -> Table:
    """How free decoding ended, and where it broke."""
    columns = [Column("keeps", text=True), Column("to", 5), Column("repeats"), Column("distinct-1", 4),
               Column("distinct-2", 5), Column("entropy", 6), Column("echo", 7),
               Column("broke", text=True)]  # fmt: skip
    rows = [
        [one.name, number(last.age), percent(last.repetition), f"{last.distinct_1:.2f}",
         f"{last.distinct_2:.2f}", f"{last.entropy:.2f}", percent(last.pinned_repetition),
         _broke(one.free_run_breakdown)]
        for one in part.variants
        for last in one.free_run[-1:]
    ]  # fmt: skip
    return Table("Free decoding, its last stretch", columns, rows)


def _longest(variants: Sequence[QualityVariant]) -> list[PerplexityByAge]:
    return max((one.by_age for one in variants), key=len, default=[])


def _perplexity(value: float | None) -> str:
    if value is None:
        return NO_DATA
    return digits(value, 3) if value < 1000 else f"{min(value, 1e15):,.0f}"


def _relative(nats: float) -> str:
    return f"{100 * math.expm1(min(nats, 20.0)):+.1f} %"


def _excess(found: EstimateResult | None) -> str:
    return NO_DATA if found is None else _relative(found.value)


def _interval(found: EstimateResult | None) -> str:
    return NO_DATA if found is None else f"{_relative(found.low)} to {_relative(found.high)}"


def _share(found: EstimateResult | None) -> str:
    return NO_DATA if found is None else percent(found.value)


def _shares(found: EstimateResult | None) -> str:
    return NO_DATA if found is None else f"{percent(found.low)} to {percent(found.high)}"


def _nats(found: EstimateResult | None) -> str:
    return NO_DATA if found is None else f"{found.value:.2f}"


def _broke(found: BreakdownResult | None) -> str:
    return "no" if found is None else f"at {found.age:,}: {found.how}"
