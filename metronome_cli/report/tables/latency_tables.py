"""Tables of a probe: what a step costs under each policy, and how many sessions the deadline allows."""

from __future__ import annotations

from metronome_cli.core.formatting import NO_DATA, duration, format_ms, number, percent
from metronome_cli.report.tables.table import Column, Table
from metronome_cli.results.latency_result import PolicyCost
from metronome_cli.results.run_report import Report


def policy_costs(report: Report) -> Table:
    """The fitted cost of a step under each policy."""
    columns = [Column("policy", text=True), Column("fixed ms", 6), Column("per session ms", 6),
               Column("per 1,000 tokens ms", 5), Column("spread", 3), Column("oldest/youngest", 7),
               Column("90 % interval", 4), Column("flat in age", text=True)]  # fmt: skip
    rows = [
        [cost.policy, format_ms(cost.fixed_ms), format_ms(cost.per_session_ms), format_ms(cost.per_1000_tokens_ms),
         percent(cost.fit_relative_rmse), _ratio(cost.age_ratio),
         NO_DATA if cost.age_ratio_low is None else f"{_ratio(cost.age_ratio_low)} to {_ratio(cost.age_ratio_high)}",
         _flat(cost)]
        for cost in (report.probe.policies if report.probe else [])
    ]  # fmt: skip
    return Table("Cost of a step", columns, rows)


def _ratio(value: float | None) -> str:
    return NO_DATA if value is None else f"{value:.2f}"


def _flat(cost: PolicyCost) -> str:
    if cost.age_independent is None:
        return NO_DATA if cost.age_ratio is None else "not clear"
    return "yes" if cost.age_independent else "no"


def age_limits(report: Report) -> Table:
    """Sessions whose step fits the deadline, by age."""
    columns = [Column("policy", text=True), Column("age"), Column("sessions"), Column("", 5, text=True)]
    rows = [
        [cost.policy, duration(limit.age_s), "any" if limit.sessions is None else number(limit.sessions),
         "extrapolated" if limit.extrapolated else ""]
        for cost in (report.probe.policies if report.probe else [])
        for limit in cost.deadline_limits
    ]  # fmt: skip
    return Table("Sessions that the deadline allows, by the fit", columns, rows)


def cells(report: Report) -> Table:
    """Everything that was measured."""
    columns = [Column("policy", text=True), Column("sessions"), Column("age", 8), Column("tokens", 4),
               Column("step ms"), Column("noise", 5), Column("steps", 3), Column("why", 2, text=True)]  # fmt: skip
    rows = [
        [cell.policy, number(cell.sessions), duration(cell.age_s), number(cell.resident_tokens),
         format_ms(cell.median_ms), percent(cell.median_relative_error), number(cell.steps), cell.skipped or ""]
        for cell in (report.probe.cells if report.probe else [])
    ]  # fmt: skip
    return Table("Measured steps", columns, rows)


def movers(report: Report) -> Table:
    """What would move the cost, most first."""
    found = report.probe.time_breakdown if report.probe else []
    return Table("What a step's time goes to", [Column("", text=True)], [[line] for line in found])
