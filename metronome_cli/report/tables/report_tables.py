"""A report's tables, the same for text, HTML and Markdown: a title, columns, rows of text."""

from __future__ import annotations

from collections.abc import Iterator

from metronome_cli.core.formatting import (
    NO_DATA,
    duration,
    format_bound,
    format_ms,
    format_probability,
    format_time,
    number,
    percent,
)
from metronome_cli.core.quantities import format_size
from metronome_cli.report.tables.latency_tables import age_limits, cells, movers, policy_costs
from metronome_cli.report.tables.listener_tables import listener_tables
from metronome_cli.report.tables.quality_tables import quality_tables
from metronome_cli.report.tables.surface_tables import device, surfaces
from metronome_cli.report.tables.table import Column, Table, without_empty_columns
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.forecast_result import Interval
from metronome_cli.results.network_stats import NetworkStats
from metronome_cli.results.phrases import value_with_unit
from metronome_cli.results.policy_runs import PolicyRun
from metronome_cli.results.run_report import Report


def tables(report: Report) -> list[Table]:
    """Every table that the report has something for."""
    found = [
        objectives(report), points(report), *listener_tables(report), wires(report), policy_runs(report),
        repeats(report),
        forecast(report),
        hazards(report), policy_costs(report), age_limits(report), *surfaces(report), device(report), movers(report),
        *quality_tables(report), cells(report), memory(report), assumptions(report), gaps(report),
        gpus(report), fleet(report),
    ]  # fmt: skip
    return [without_empty_columns(table) for table in found if table.rows]


def objectives(report: Report) -> Table:
    """Each objective of the deciding trial."""
    columns = [Column("objective", text=True), Column("verdict", text=True), Column("measured"),
               Column("limit", 5), Column("confidence", 4), Column("why", 3, text=True, below=True)]  # fmt: skip
    rows = [
        [o.objective, o.verdict, value_with_unit(o), format_bound(o.limit, o.unit),
         percent(o.confidence), o.reason]
        for o in report.objectives
    ]  # fmt: skip
    return Table("Objectives", columns, rows)


POINT_COLUMNS = [
    Column("sessions"), Column("verdict", text=True), Column("purpose", 2, text=True), Column("p50 ms", 3),
    Column("p99 ms", 8), Column("max ms", 4), Column("frames", 4), Column("misses", 7), Column("empty", 6),
    Column("batches", 3),
    Column("pool", 5), Column("limited by", 6, text=True), Column("why", 1, text=True, below=True),
]  # fmt: skip


def points(report: Report) -> Table:
    """Every trial, fewest sessions first."""
    measured_points = report.capacity.trials if report.capacity else []
    ordered = sorted(measured_points, key=lambda point: point.sessions)
    return Table(
        "Trials: latency, misses and empty frames",
        POINT_COLUMNS,
        [_point(point) for point in ordered],
    )


def _point(point: TrialResult) -> list[str]:
    latency = point.latency_ms
    return [
        number(point.sessions), point.verdict, point.purpose or NO_DATA, format_ms(latency.p50), format_ms(latency.p99),
        format_ms(latency.max), number(point.frames), number(point.misses), number(point.empty_frames),
        number(point.batches),
        percent(point.occupancy_max), NO_DATA if point.limited_by == "none" else point.limited_by, point.reason,
    ]  # fmt: skip


WIRE_COLUMNS = [
    Column("sessions"), Column("purpose", 2, text=True), Column("started", 7), Column("rejected", 7),
    Column("queue timeout", 7), Column("setup p99", 6), Column("send lateness p99.9", 5), Column("output/input", 6),
    Column("server backlog p99", 4), Column("reconnects", 4), Column("lost", 3, text=True),
]  # fmt: skip


SILENT_SHARE_SHOWN = 0.05  # of the output: a server that mutes its sound sends some digital silence


def wires(report: Report) -> Table:
    """Network figures of each trial on a server; times in milliseconds."""
    measured_points = report.capacity.trials if report.capacity else []
    ordered = sorted(measured_points, key=lambda point: point.sessions)
    rows = [_wire(point, point.network) for point in ordered if point.network is not None]
    return Table("Network, ms", WIRE_COLUMNS, rows)


def _wire(point: TrialResult, wire: NetworkStats) -> list[str]:
    lost = ", ".join(f"{count} {reason}" for reason, count in point.sessions_ended_early.items())
    rate = NO_DATA if wire.output_s_per_input_s is None else f"{wire.output_s_per_input_s:.3f}"
    if wire.silent_output_share and wire.silent_output_share > SILENT_SHARE_SHOWN:
        lost = ", ".join(filter(None, (lost, f"{wire.silent_output_share:.0%} digital silence")))
    return [
        number(point.sessions), point.purpose or NO_DATA, number(wire.sessions_started), number(wire.sessions_rejected),
        number(wire.sessions_queue_timeout), format_ms(wire.session_setup_ms.p99),
        format_ms(wire.send_lateness_ms.p999), rate,
        format_ms(wire.server_backlog_ms.p99), number(wire.reconnects) if wire.reconnects else NO_DATA, lost or NO_DATA,
    ]  # fmt: skip


def policy_runs(report: Report) -> Table:
    """Policies under the same controller and load."""
    columns = [Column("name", text=True), Column("policy", 3, text=True), Column("mean sessions"),
               Column("collapsed", text=True), Column("at", 6), Column("lost", 7),
               Column("pool", 5), Column("why", 1, text=True, below=True)]  # fmt: skip
    return Table(
        "Policies under the same controller", columns, [_policy_run(run) for run in report.policy_runs]
    )


def _policy_run(run: PolicyRun) -> list[str]:
    settled = NO_DATA if run.mean_sessions_mid_run is None else number(round(run.mean_sessions_mid_run))
    return [
        run.name, run.policy, settled, "yes" if run.collapsed else "no",
        format_time(run.collapse.t_s if run.collapse else None), number(run.sessions_lost),
        percent(run.occupancy_max), run.no_admission_reason,
    ]  # fmt: skip


def repeats(report: Report) -> Table:
    """Repeated runs under different seeds."""
    columns = [Column("policy", text=True), Column("sessions"), Column("length", 5), Column("collapsed"),
               Column("90 % interval", 6), Column("forecast", 7)]  # fmt: skip
    rows = [
        [t.policy, number(t.sessions), duration(t.session_length_s), f"{t.collapsed} of {t.repeats}",
         _range(percent(t.collapsed_share_low), percent(t.collapsed_share_high)),
         format_probability(t.forecast_probability)]
        for t in report.repeats
    ]  # fmt: skip
    return Table("Repeats under different seeds", columns, rows)


def _range(low: str, high: str) -> str:
    return NO_DATA if low == high == NO_DATA else f"{low} to {high}"


def _ends(low: str, high: str) -> str:
    """ " (61 to 70)"; nothing where there is no interval to speak of."""
    return "" if low == high else f" ({low} to {high})"


def span_of(interval: Interval) -> str:
    """ "148 s (131 s to 167 s)", "never", or "at once"."""
    if not interval.estimate:
        return "never" if interval.estimate is None else "at once"
    return duration(interval.estimate) + _ends(duration(interval.low), duration(interval.high))


def forecast(report: Report) -> Table:
    """The forecast in a few lines."""
    return Table("Forecast", [Column("", text=True), Column("", text=True)], list(_forecast(report)))


def _forecast(report: Report) -> Iterator[list[str]]:
    given = report.forecast
    if given is None:
        return
    known = given.fills is not None or given.fill_time_s.estimate is not None
    ends = "pool full" if given.first_hazard in ("pool", "none") else "ends"
    yield [ends, span_of(given.fill_time_s) if known else "not known"]
    if given.collapse_probability is not None:
        within = f"within {duration(given.session_length_s)}"
        yield [f"probability {within}", format_probability(given.collapse_probability)]
        yield [f"limited by, {within}", "nothing" if given.limited_by == "none" else given.limited_by]
        if given.first_hazard not in ("none", given.limited_by):
            yield ["first hazard without an end", given.first_hazard]
    elif known:
        yield ["limited by", given.limited_by]
    if given.reason:
        yield ["why", given.reason]
    if given.served_share is not None:
        yield ["share of offered frames served", percent(given.served_share)]
    if given.observed_fill_time_s is not None:
        yield ["pool full in the trace", duration(given.observed_fill_time_s)]
    if given.remaining_s is not None:
        yield ["remaining", duration(given.remaining_s)]
    if given.max_sessions is not None:
        sure = f" at {percent(given.confidence)} confidence" if given.confidence is not None else ""
        yield ["sessions that fit", number(given.max_sessions) + sure]
    if given.fitting_window_tokens is not None:
        yield ["largest window that fits", f"{number(given.fitting_window_tokens)} positions"]
    if given.implied_pool is not None and given.implied_pool.pool_bytes is not None:
        seen = (
            f"{duration(given.implied_pool.fill_time_s)} with {number(given.implied_pool.sessions)} sessions"
        )
        yield [f"pool implied by {seen}", format_size(given.implied_pool.pool_bytes)]


def hazards(report: Report) -> Table:
    """Everything that can end the run, each by itself."""
    columns = [Column("hazard", text=True), Column("comes at", text=True), Column("probability"),
               Column("steady occupancy", 5)]  # fmt: skip
    found = report.forecast.hazards if report.forecast else []
    rows = [
        [
            h.name,
            span_of(h.fill_time_s),
            format_probability(h.collapse_probability),
            percent(h.steady_occupancy),
        ]
        for h in found
    ]
    return Table("Hazards", columns, rows)


def memory(report: Report) -> Table:
    """From a device's memory to the pool."""
    columns = [Column("memory", text=True), Column("size"), Column("how", 5, text=True)]
    found = report.forecast.memory if report.forecast else []
    rows = [[m.what, ("-" if m.bytes < 0 else "") + format_size(abs(m.bytes)), m.how] for m in found]
    return Table("From memory to the pool", columns, rows)


def assumptions(report: Report) -> Table:
    """Assumptions of the forecast."""
    found = report.forecast.assumptions if report.forecast else []
    return Table("Assumptions", [Column("", text=True)], [[line] for line in found])


def gaps(report: Report) -> Table:
    """Missing or unusual samples."""
    found = report.forecast.sample_notes if report.forecast else []
    return Table("Sample quality", [Column("", text=True)], [[line] for line in found])


def gpus(report: Report) -> Table:
    """Estimates for GPUs that were not measured."""
    columns = [Column("GPU", text=True), Column("memory", 5), Column("sessions"), Column("limited by", text=True),
               Column("by memory", 6), Column("by deadline", 6)]  # fmt: skip
    rows = [
        [g.title, format_size(g.memory_bytes), _count_range(g.sessions), g.limited_by, number(g.memory_sessions),
         _count_range(g.deadline_sessions)]
        for g in report.gpus
    ]  # fmt: skip
    return Table("Estimates, not measured", columns, rows)


def _count_range(interval: Interval) -> str:
    return number(interval.estimate) + _ends(number(interval.low), number(interval.high))


def fleet(report: Report) -> Table:
    """Fleets near the size needed."""
    columns = [Column("GPUs"), Column("slots"), Column("in use", 6), Column("rejected"),
               Column("random routing", 4), Column("one node down", 7), Column("lost with a node", 3)]  # fmt: skip
    rows = [
        [number(s.gpus), number(s.slots), percent(s.utilisation), percent(s.blocking),
         percent(s.random_routing_blocking), percent(s.node_down_blocking), number(s.sessions_lost_with_node)]
        for s in (report.fleet.sizes if report.fleet else [])
    ]  # fmt: skip
    return Table("Fleet", columns, rows)
