"""A latency probe's text, tables and surface: every measured figure is there, and nothing that was not measured."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.report.html.cost_surface_plot import cost_surface, fitted_ms, formula
from metronome_cli.report.tables.latency_tables import policy_costs
from metronome_cli.report.tables.surface_tables import device, small_plot, surfaces
from metronome_cli.results.latency_result import GridCellResult, PolicyCost, ProbeResult
from metronome_cli.results.run_report import Report
from tests.report.builders import nothing_report, probe_report


def cells_of(report: Report) -> list[GridCellResult]:
    assert report.probe is not None
    return report.probe.cells


def test_each_policy_has_a_table_of_its_medians_and_dashes_where_none_was_measured() -> None:
    window, unbounded = surfaces(probe_report())
    assert [column.name for column in window.columns] == ["sessions", "60 s", "10 min", "1 h"]
    assert [row[0] for row in window.rows] == ["1", "8", "16"]
    assert window.rows[0] == ["1", "5.8", "5.8", "5.8"]
    assert unbounded.rows[2] == ["16", "18", "22", "-"]


@given(width=st.integers(40, 200))
def test_bars_fit_any_width_and_the_longest_is_the_slowest(width: int) -> None:
    lines = small_plot(probe_report(), width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert lines[0] == "Step with 16 sessions, by age"
    bars = {line.partition("  ")[0]: line.count("#") for line in lines[1:]}
    assert max(bars, key=lambda name: bars[name]) == "unbounded 10 min"
    assert min(bars.values()) >= 1
    assert all(line.rstrip("# ").endswith(" ms") for line in lines[1:])


def test_a_share_of_more_than_all_is_explained() -> None:
    rows = {row[0]: row for row in device(probe_report()).rows}
    assert rows["share of bandwidth reached"][1:] == ["60 %", "decoder's passes, batch 1"]
    assert rows["share of compute reached"][1] == "120 %"
    assert "over 100 %" in rows["share of compute reached"][2]


def test_whether_it_grows_is_said_with_its_interval() -> None:
    window, unbounded = policy_costs(probe_report()).rows
    assert window[-3:] == ["1.01", "0.98 to 1.04", "yes"]
    assert unbounded[-3:] == ["2.40", "-", "no"]
    unclear = ProbeResult(kind="latency", policies=[PolicyCost(policy="a", age_ratio=1.2)])
    assert policy_costs(probe_report(probe=unclear)).rows[0][-1] == "not clear"


def test_without_a_probe_there_is_nothing() -> None:
    empty = nothing_report()
    assert surfaces(empty) == []
    assert device(empty).rows == []
    assert small_plot(empty, 80) == ""
    assert cost_surface(empty) is None


def test_the_surface_shows_every_measured_cell_and_its_fit() -> None:
    report = probe_report()
    plot = cost_surface(report)
    assert plot is not None
    assert "deadline of 80 ms" in plot.caption
    assert "T = 5 + 0.8 N + 0.1 N r/1000 ms" in plot.wide
    for drawing in (plot.wide, plot.narrow):
        fits = drawing.count(">fit ")
        assert fits == sum(
            cell.policy != "unbounded" and cell.median_ms is not None for cell in cells_of(report)
        )
        assert drawing.count(">-<") == sum(cell.median_ms is None for cell in cells_of(report))
        assert "var(--series-1)" in drawing


def test_cells_beyond_the_deadline_are_framed() -> None:
    calm, late = probe_report(), probe_report()
    assert late.probe is not None
    late.probe.cells[0].median_ms = 500.0
    drawn = [cost_surface(report) for report in (calm, late)]
    assert [plot.wide.count("var(--deadline)") if plot else None for plot in drawn] == [0, 1]


costs = st.floats(0, 1e3)


@given(costs, costs, costs, st.integers(1, 999), st.integers(1, 99_999))
def test_the_fit_is_the_formula(
    fixed: float, each: float, token: float, sessions: int, resident: int
) -> None:
    cost = PolicyCost(policy="a", fixed_ms=fixed, per_session_ms=each, per_1000_tokens_ms=token)
    cell = GridCellResult(policy="a", sessions=sessions, age_s=1.0, resident_tokens=resident, steps=1)
    expected = fixed + each * sessions + token * sessions * resident / 1000
    assert fitted_ms(cost, cell) == pytest.approx(expected)
    assert fitted_ms(PolicyCost(policy="a"), cell) is None
    assert formula(PolicyCost(policy="a")) == ""


@settings(max_examples=8, deadline=None)
@given(medians=st.lists(st.one_of(st.none(), st.floats(1e-6, 1e9)), min_size=2, max_size=6))
def test_any_medians_can_be_drawn(medians: list[float | None]) -> None:
    cells = [
        GridCellResult(
            policy="a_$x$", sessions=2**at, age_s=60.0, resident_tokens=9, steps=3, median_ms=median
        )
        for at, median in enumerate(medians)
    ]
    plot = cost_surface(probe_report(probe=ProbeResult(kind="latency", cells=cells)))
    assert (plot is None) == (sum(median is not None for median in medians) < 2)
