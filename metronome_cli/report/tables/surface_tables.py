"""A probe of latency in text: the surface as a table for each policy, the device's limits, a small plot."""

from __future__ import annotations

from metronome_cli.core.formatting import NO_DATA, duration, format_ms, percent
from metronome_cli.core.quantities import format_size
from metronome_cli.report.tables.table import Column, Table
from metronome_cli.results.latency_result import GridCellResult
from metronome_cli.results.run_report import Report

_BAR = 40  # characters of the longest bar
_MOST_ROWS = 24


def surfaces(report: Report) -> list[Table]:
    """For each policy: rows by batch, columns by age, the median step in milliseconds."""
    found = report.probe.cells if report.probe else []
    return [
        _surface(policy, [cell for cell in found if cell.policy == policy])
        for policy in dict.fromkeys(cell.policy for cell in found)
    ]


def _surface(policy: str, cells: list[GridCellResult]) -> Table:
    ages = sorted({cell.age_s for cell in cells})
    steps = {(cell.sessions, cell.age_s): cell.median_ms for cell in cells}
    columns = [Column("sessions"), *(Column(duration(age)) for age in ages)]
    rows = [
        [str(batch), *(format_ms(steps.get((batch, age))) for age in ages)]
        for batch in sorted({cell.sessions for cell in cells})
    ]
    return Table(f"Median step in ms by age, {policy}", columns, rows)


def device(report: Report) -> Table:
    """What this device reached in the same run, and how near the steps came."""
    limits = report.probe.device_peaks if report.probe else None
    columns = [Column("this device, same run", text=True), Column(""), Column("", 5, text=True)]
    if limits is None:
        return Table("Device limits", columns, [])
    rows = [
        [
            "memory bandwidth",
            f"{limits.bytes_per_s / 1e9:.1f} GB/s",
            "gemv or sum of a matrix beyond the caches",
        ],
        ["compute", f"{limits.flops_per_s / 1e9:,.0f} GFLOP/s", "gemm"],
        ["weights read a pass", format_size(limits.weight_bytes), ""],
        [
            "least time of a decode pass",
            f"{format_ms(limits.weight_read_floor_ms)} ms",
            "weights over bandwidth",
        ],
        [
            "share of bandwidth reached",
            percent(limits.share_of_bandwidth),
            _over("decoder's passes, batch 1", limits.share_of_bandwidth),
        ],
        [
            "share of compute reached",
            percent(limits.share_of_compute),
            _over("largest batch", limits.share_of_compute),
        ],
    ]
    return Table("Device limits", columns, [row for row in rows if row[1] != NO_DATA])


def _over(what: str, share: float | None) -> str:
    """A share of more than all says that the limit was not reached when it was measured."""
    if share is None or share <= 1:
        return what
    return f"{what}; over 100 %: the machine had less to give when its limit was measured"


def small_plot(report: Report, width: int) -> str:
    """Bars of the median step at the largest batch, by policy and age; empty without cells."""
    found = [cell for cell in (report.probe.cells if report.probe else []) if cell.median_ms]
    if not found:
        return ""
    largest = max(cell.sessions for cell in found)
    shown = [cell for cell in found if cell.sessions == largest][:_MOST_ROWS]
    labels = [f"{cell.policy} {duration(cell.age_s)}" for cell in shown]
    values = [f"{format_ms(cell.median_ms)} ms" for cell in shown]
    label, figure = max(map(len, labels)), max(map(len, values))
    highest = max(cell.median_ms or 0.0 for cell in shown)
    room = max(1, min(_BAR, width - label - figure - 4))
    lines = [f"Step with {largest} sessions, by age"]
    for name, value, cell in zip(labels, values, shown, strict=True):
        bar = "#" * max(1, round(room * (cell.median_ms or 0.0) / highest))
        lines.append(f"{name.ljust(label)}  {value.rjust(figure)}  {bar}"[:width].rstrip())
    return "\n".join(lines)
