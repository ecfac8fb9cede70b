"""Plots of a capacity run: latency against the number of sessions, and where a step's time goes."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from metronome_cli.core.formatting import format_measured, format_ms, plural
from metronome_cli.report.html.deadline import deadline_of
from metronome_cli.report.html.plotting import (
    Plot,
    deadline_line,
    latency_axis,
    legend,
    make_plot,
    or_nan,
    short,
)
from metronome_cli.report.html.svg import SERIES, STAND_IN
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.run_report import Report


def curve(report: Report) -> Plot | None:
    """Percentiles of frame latency at every number of sessions, and the deadline."""
    deadline_ms = deadline_of(report)
    measured = best_points(report)
    points = [point for point in measured if not failed_fast(point, deadline_ms)]
    failures = [point for point in measured if failed_fast(point, deadline_ms)]
    if len(measured) < 2 or not points:
        return None

    def paint(axes: Sequence[Axes]) -> None:
        panel = axes[0]
        for name in ("max", "p99", "p90", "p50"):
            values = [or_nan(getattr(point.latency_ms, name)) for point in points]
            panel.plot(
                [point.sessions for point in points], values, marker="o", color=STAND_IN[name], label=name
            )
        if deadline_ms is not None:
            deadline_line(panel, deadline_ms)
        if report.capacity and report.capacity.safe_sessions is not None:
            safe = report.capacity.safe_sessions
            panel.axvline(safe, color=STAND_IN["muted"], linestyle=":", label=f"safe: {safe}")
        panel.set_xlabel("sessions")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        latency_axis(panel, [point.latency_ms.max for point in points], deadline_ms)
        if failures:
            panel.plot(
                [point.sessions for point in failures],
                [panel.get_ylim()[1] * 0.97] * len(failures),
                marker="x", markersize=8, linestyle="", color=STAND_IN["deadline"], label="failed, for another reason",
            )  # fmt: skip
        legend(panel)

    smallest, largest = points[0], points[-1]
    caption = (
        f"Frame latency (answer available minus due time) from {smallest.sessions} to {largest.sessions} "
        f"sessions: p99 goes from {format_ms(smallest.latency_ms.p99)} to {format_ms(largest.latency_ms.p99)} ms"
    )
    caption += f", the deadline is {format_measured(deadline_ms, 'ms')}." if deadline_ms is not None else "."
    if failures:
        named = "; ".join(f"{point.sessions}: {point.reason or point.ended_by}" for point in failures[:3])
        caption += f" A cross marks a failure for another reason than latency ({named})."
    return make_plot("Latency against sessions", caption, paint, [1.3], "curve")


def failed_fast(point: TrialResult, deadline_ms: float | None) -> bool:
    """True if the trial failed although its p99 is within the deadline: its latency is no answer."""
    p99 = point.latency_ms.p99
    return point.verdict == "fail" and (p99 is None or deadline_ms is None or p99 <= deadline_ms)


def late_shares(report: Report) -> Plot | None:
    """Share of late frames against the number of sessions: the estimate with its band, and each trial as a dot."""
    estimate = report.capacity.estimate if report.capacity else None
    if report.capacity is None or estimate is None or len(estimate.late_shares) < 2:
        return None
    band = estimate.late_shares
    least = estimate.late_share_limit / 100  # where a share of 0 is drawn
    trials = [trial for trial in report.capacity.trials if trial.frames and trial.purpose != "memory"]

    def paint(axes: Sequence[Axes]) -> None:
        panel, numbers = axes[0], [one.sessions for one in band]
        low, high = ([max(least, one.low) for one in band], [max(least, one.high) for one in band])
        panel.fill_between(
            numbers, low, high, color=STAND_IN["p50"], alpha=0.25, linewidth=0, label="90 % interval"
        )
        panel.plot(
            numbers, [max(least, one.expected) for one in band], color=STAND_IN["p50"], label="estimate"
        )
        at, seen = [t.sessions for t in trials], [max(least, t.misses / t.frames) for t in trials]
        panel.plot(at, seen, marker="o", linestyle="", color=STAND_IN["p99"], label="trial")
        limit = estimate.late_share_limit
        panel.axhline(
            limit, color=STAND_IN["deadline"], linestyle="--", linewidth=1.4, label=f"limit {limit:.1%}"
        )
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: "0 %" if value <= least else f"{value:.2g}")
        )
        panel.set_ylabel("share of late frames")
        panel.set_xlabel("sessions")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        legend(panel)

    caption = (
        f"Share of late frames against the number of sessions, by all trials together: at most "
        f"{estimate.late_share_limit:.1%} up to {estimate.sessions} sessions, 90 % interval {estimate.low} to "
        f"{estimate.high}. Each dot is a trial; one at the lowest line had no late frame."
    )
    return make_plot("Late frames against sessions", caption, paint, [1.3], "late")


def best_points(report: Report) -> list[TrialResult]:
    """For each number of sessions the measurement with most steps, smallest number first."""
    best: dict[int, TrialResult] = {}
    for point in report.capacity.trials if report.capacity else []:
        held = best.get(point.sessions)
        if point.latency_ms.p99 is not None and (held is None or point.batches > held.batches):
            best[point.sessions] = point
    return [best[sessions] for sessions in sorted(best)]


def stages(report: Report) -> Plot | None:
    """Mean time of each stage of a step, at every number of sessions."""
    points = [point for point in best_points(report) if sum(point.stages_ms.values()) > 0]
    if not points:
        return None
    names = list(dict.fromkeys(name for point in points for name in point.stages_ms))
    deadline_ms = deadline_of(report)

    def paint(axes: Sequence[Axes]) -> None:
        panel = axes[0]
        bottom = [0.0] * len(points)
        places = range(len(points))
        for index, name in enumerate(names):
            values = [point.stages_ms.get(name, 0.0) for point in points]
            colour = STAND_IN[SERIES[index % len(SERIES)]]
            panel.bar(places, values, bottom=bottom, color=colour, label=short(name), width=0.62)
            bottom = [low + value for low, value in zip(bottom, values, strict=True)]
        if deadline_ms is not None and max(bottom) > 0.4 * deadline_ms:
            deadline_line(panel, deadline_ms)
        panel.set_xticks(places, [f"{point.sessions}" for point in points])
        panel.set_xlim(-0.5, max(len(points), 6) - 0.5)  # few bars stay slim
        panel.set_xlabel("sessions")
        panel.set_ylabel("mean step, ms")
        panel.grid(visible=False, axis="x")
        legend(panel)

    last = points[-1]
    split = ", ".join(f"{name} {format_ms(value)} ms" for name, value in last.stages_ms.items())
    caption = f"Mean time of each stage of an engine step. At {plural(last.sessions, 'session')}: {split}."
    return make_plot("Where a step's time goes", caption, paint, [1.0], "stages")
