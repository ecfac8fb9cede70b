"""The quality probe's tables and plots say what was measured of every variant, and dashes where nothing was."""

from __future__ import annotations

import math

import pytest

from metronome_cli.probe.quality_report import answer_of
from metronome_cli.report.html.page import render_html
from metronome_cli.report.html.quality_plots import perplexity_by_age, repetition_by_age
from metronome_cli.report.html.svg import SERIES
from metronome_cli.report.plain_text import render_text
from metronome_cli.report.tables.quality_tables import answers, by_age, quality_tables, spoken, standings
from metronome_cli.report.tables.table import Table
from metronome_cli.results.latency_result import ProbeResult
from metronome_cli.results.quality_result import PerplexityByAge, QualityResult
from metronome_cli.results.run_report import Report
from tests.report.builders import nothing_report, probe_report, quality_report


def part_of(report: Report) -> QualityResult:
    assert report.probe is not None
    assert report.probe.quality is not None
    return report.probe.quality


def named(table: Table) -> dict[str, dict[str, str]]:
    names = [column.name for column in table.columns]
    return {row[0]: dict(zip(names, row, strict=True)) for row in table.rows}


def test_every_variant_stands_beside_unbounded() -> None:
    rows = named(standings(part_of(quality_report())))
    assert rows["unbounded"]["stands"] == "baseline"
    assert rows["unbounded"]["excess"] == rows["unbounded"]["a session"] == "-"
    good = rows["window(256, 4)"]
    assert (good["a session"], good["excess"], good["stands"]) == ("12 MiB", "+2.0 %", "equivalent")
    assert good["90 % interval"] == "+1.0 % to +3.0 %"
    assert rows["window(256, 0)"]["stands"] == "worse"


def test_an_excess_without_end_is_still_a_number() -> None:
    part = part_of(quality_report())
    excess = part.variants[1].excess_loss_nats
    assert excess is not None
    excess.value = excess.high = 1e6
    assert "inf" not in named(standings(part))["window(256, 0)"]["excess"]


def test_answers_have_their_shares_and_intervals() -> None:
    row = named(answers(part_of(quality_report())))["window(256, 4)"]
    assert (row["turns"], row["right"], row["between"]) == ("32", "50 %", "36 % to 64 %")
    assert (row["ended"], row["agrees"], row["reference nats"]) == ("100 %", "80 %", "1.20")
    assert row["excess"] == row["frames dropped"] == row["steps late"] == "-"


def test_ages_are_columns_and_a_short_stream_has_dashes() -> None:
    part = part_of(quality_report())
    part.variants[1].by_age = part.variants[1].by_age[:2]
    table = by_age(part)
    assert [column.name for column in table.columns][1:] == [
        "0",
        "2,000",
        "4,000",
        "6,000",
        "8,000",
        "10,000",
    ]
    assert named(table)["window(256, 0)"]["4,000"] == "-"
    assert named(table)["window(256, 4), absolute"]["10,000"] == "380"


@pytest.mark.parametrize("count", [1, 9, 10, 11, 37])
def test_many_ages_are_thinned_to_ten_at_most(count: int) -> None:
    part = part_of(quality_report())
    for one in part.variants:
        one.by_age = [PerplexityByAge(age=at * 100, tokens=100, perplexity=9.0) for at in range(count)]
    ages = [column.name for column in by_age(part).columns][1:]
    assert 1 <= len(ages) <= 10
    assert ages[0] == "0"


def test_where_speech_broke_is_said() -> None:
    rows = named(spoken(part_of(quality_report())))
    assert rows["window(256, 4)"]["broke"] == "no"
    assert rows["window(256, 4), absolute"]["broke"].startswith("at 10,000: ")
    assert rows["window(256, 4)"]["to"] == "256"


def test_text_and_page_hold_every_variant() -> None:
    report = quality_report()
    for shown in (render_text(report, 120), render_html(report)):
        for one in part_of(report).variants:
            assert one.name in shown


def test_other_reports_have_no_quality() -> None:
    for report in (nothing_report(), probe_report()):
        assert quality_tables(report) == []
        assert perplexity_by_age(report) is None
        assert repetition_by_age(report) is None


def test_a_broken_variant_makes_the_plot_logarithmic_and_the_context_is_marked() -> None:
    broken, healthy = quality_report(), quality_report()
    part_of(healthy).variants[-1].by_age[-1].perplexity = 10.0
    part_of(healthy).context = 32_768
    drawn, calm = perplexity_by_age(broken), perplexity_by_age(healthy)
    assert drawn is not None
    assert calm is not None
    assert "trained context" in drawn.wide
    assert "trained context" not in calm.wide
    assert ">100<" in drawn.wide
    assert ">100<" not in calm.wide


def test_unbounded_and_the_recommended_are_always_drawn() -> None:
    part = part_of(quality_report())
    others = [part.variants[1].model_copy(update={"name": f"window(8, {at})"}) for at in range(20)]
    part.variants = [*others, *part.variants]
    plot = repetition_by_age(quality_report(probe=ProbeResult(kind="quality", quality=part)))
    assert plot is not None
    assert ">unbounded<" in plot.wide
    assert ">window(256, 4)<" in plot.wide
    assert sum(f"var(--{series})" in plot.wide for series in SERIES) == len(SERIES)


def test_one_stretch_is_no_line() -> None:
    part = part_of(quality_report())
    for one in part.variants:
        one.by_age, one.free_run = one.by_age[:1], one.free_run[:1]
    report = quality_report(probe=ProbeResult(kind="quality", quality=part))
    assert perplexity_by_age(report) is None
    assert repetition_by_age(report) is None


def test_the_answer_explains_what_unbounded_is_no_measure_for() -> None:
    part = part_of(quality_report())
    said = answer_of(part)
    assert "window(256, 4), 12 MiB a session, tested up to an age of 12,001 tokens" in said
    assert "Unbounded is a measure only up to 8,192 tokens" in said
    assert "breaks at 10,000 tokens" in said
    assert part.recommended is not None
    part.recommended.tested_up_to_tokens = part.recommended.compared_up_to_tokens = 8192
    assert "measure only" not in answer_of(part)
    part.recommended = None
    assert answer_of(part).startswith("No (W, S) that was tried was shown to be within 5 %")
    assert math.isclose(part.margin, math.log(1.05))
