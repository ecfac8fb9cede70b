"""Plots in time: one run on its own clock, and several policies beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from metronome_cli.core.formatting import duration, format_ms, format_time, percent, plural
from metronome_cli.report.conditions import deciding_point, failing_point
from metronome_cli.report.html.deadline import deadline_of
from metronome_cli.report.html.plotting import (
    WINDOWS,
    Plot,
    deadline_line,
    latency_axis,
    legend,
    make_plot,
    or_nan,
    share_axis,
    short,
    time_axis,
)
from metronome_cli.report.html.svg import SERIES, STAND_IN
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.measured import Window
from metronome_cli.results.policy_runs import PolicyRun
from metronome_cli.results.run_report import Report
from metronome_cli.results.timeline import downsample


def timelines(report: Report) -> list[Plot]:
    """The controller's ramp, the run that the answer rests on, and the one that failed."""
    deadline_ms = deadline_of(report)
    found = []
    if report.capacity is not None:
        ramp = report.capacity.ramp_windows
        found.append(timeline("The controller's ramp", ramp, deadline_ms, "ramp"))
    decided, failed = deciding_point(report), failing_point(report)
    for key, point in (("decided", decided), ("failed", failed if failed is not decided else None)):
        if point is not None:
            title = f"{plural(point.sessions, 'session')}, {point.purpose}: {point.verdict}"
            found.append(timeline(title, point.windows, deadline_ms, key, point))
    return [plot for plot in found if plot is not None]


def timeline(
    title: str,
    windows: Sequence[Window],
    deadline_ms: float | None,
    key: str,
    point: TrialResult | None = None,
) -> Plot | None:
    """Latency, sessions, pool and empty frames of one run on its own clock."""
    if len(windows) < 2:
        return None
    kept = downsample(windows, WINDOWS)
    empties = any(window.empty_frames for window in windows)
    pool = _has_pool(windows)
    collapse = point.collapse if point is not None else None

    def paint(axes: Sequence[Axes]) -> None:
        _latency_panel(axes[0], kept, deadline_ms)
        _sessions_panel(axes[1], kept)
        if pool:
            _pool_panel(axes[2], kept)
        if empties:
            _empty_panel(axes[-1], kept)
        if collapse is not None:
            for panel in axes:
                panel.axvline(collapse.t_s, color=STAND_IN["empty"], linestyle=":", linewidth=1.4)
        for panel in axes:
            panel.axvspan(0, _warm_up_s(windows), color=STAND_IN["muted"], alpha=0.12, linewidth=0)
        time_axis(axes[-1], windows[-1].t_s)

    heights = [0.7, 0.5, *([0.4] if pool else []), *([0.35] if empties else [])]
    return make_plot(title, _timeline_caption(windows, point), paint, heights, key)


def _timeline_caption(windows: Sequence[Window], point: TrialResult | None) -> str:
    counted, warm_up_s = [window for window in windows if not window.warm_up], _warm_up_s(windows)
    worst = max((w.p99_ms for w in counted if w.p99_ms is not None), default=None)
    misses, empties, fullest = _totals(counted, point)
    text = (
        f"{format_time(windows[-1].t_s)} on the run's clock. Highest p99 of a window {format_ms(worst)} ms; "
    )
    text += f"{plural(misses, 'miss')}, {plural(empties, 'empty frame')}"
    text += f"; pool at most {percent(fullest)} full." if fullest is not None else "."
    if warm_up_s:
        text += f" Shaded: the warm-up, {duration(round(warm_up_s, 2))}, whose frames are not counted."
    if point is not None and point.collapse is not None:
        how = "carry nothing" if point.misses else "stay on time and carry nothing"
        text += f" Dotted: the collapse at {format_time(point.collapse.t_s)}; frames {how}."
    return text


def _totals(counted: Sequence[Window], point: TrialResult | None) -> tuple[int, int, float | None]:
    """Misses, empty frames, highest occupancy: a point's own, as its table has them."""
    if point is not None:
        return point.misses, point.empty_frames, point.occupancy_max
    fullest = max((w.occupancy for w in counted if w.occupancy is not None), default=None)
    return sum(w.misses for w in counted), sum(w.empty_frames for w in counted), fullest


def _warm_up_s(windows: Sequence[Window]) -> float:
    return max((window.t_s for window in windows if window.warm_up), default=0.0)


def _has_pool(windows: Sequence[Window]) -> bool:
    """True if a pool was visible. Without metrics, a server's pool and its running sessions are unknown."""
    return any(window.occupancy is not None for window in windows)


def _times(windows: Sequence[Window]) -> list[float]:
    return [window.t_s for window in windows]


def _latency_panel(panel: Axes, windows: Sequence[Window], deadline_ms: float | None) -> None:
    for name in ("max", "p99", "p50"):
        values = [or_nan(getattr(window, f"{name}_ms")) for window in windows]
        panel.plot(_times(windows), values, color=STAND_IN[name], label=name, linewidth=1.3)
    if deadline_ms is not None:
        deadline_line(panel, deadline_ms)
    latency_axis(panel, [window.max_ms for window in windows], deadline_ms)
    legend(panel)


def _sessions_panel(panel: Axes, windows: Sequence[Window]) -> None:
    times = _times(windows)
    name = "running" if _has_pool(windows) else "open"
    counts = [window.running if name == "running" else window.sessions for window in windows]
    panel.plot(times, counts, color=STAND_IN["running"], label=name)
    if any(window.waiting for window in windows):
        panel.plot(times, [window.waiting for window in windows], color=STAND_IN["waiting"], label="waiting")
    caps = [or_nan(window.session_limit) for window in windows]
    if not all(map(math.isnan, caps)):
        panel.plot(
            times, caps, color=STAND_IN["cap"], linestyle="--", drawstyle="steps-post", label="session limit"
        )
    panel.set_ylim(0, 1.08 * max(panel.get_ylim()[1], 1))
    panel.set_ylabel("sessions")
    panel.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    legend(panel)


def _pool_panel(panel: Axes, windows: Sequence[Window]) -> None:
    values = [or_nan(window.occupancy) for window in windows]
    panel.plot(_times(windows), values, color=STAND_IN["pool"])
    panel.fill_between(_times(windows), values, color=STAND_IN["pool"], alpha=0.15, linewidth=0)
    stages = sorted({stage for window in windows for stage in window.stage_occupancy})[: len(SERIES)]
    for index, stage in enumerate(stages):
        used = [or_nan(window.stage_occupancy.get(stage)) for window in windows]
        panel.plot(_times(windows), used, color=STAND_IN[SERIES[index]], linestyle="--", label=short(stage))
    panel.set_ylabel("KV pool" if not stages else "pools")
    share_axis(panel)
    if stages:
        legend(panel)


def _empty_panel(panel: Axes, windows: Sequence[Window]) -> None:
    """Share of the window's frames that carried nothing."""
    shares = [window.empty_frames / window.frames if window.frames else 0.0 for window in windows]
    panel.fill_between(_times(windows), shares, color=STAND_IN["empty"], step="pre", alpha=0.6, linewidth=0)
    panel.set_ylabel("empty")
    share_axis(panel)


def policy_runs(report: Report) -> Plot | None:
    """The same controller and load on different cache policies."""
    shown: list[PolicyRun] = [run for run in report.policy_runs if len(run.windows) > 1][: len(SERIES)]
    if not shown:
        return None

    def paint(axes: Sequence[Axes]) -> None:
        for index, run in enumerate(shown):
            windows = downsample(run.windows, WINDOWS)
            times, colour = _times(windows), STAND_IN[SERIES[index]]
            axes[0].plot(times, [w.sessions for w in windows], color=colour, label=short(run.name))
            axes[1].plot(times, [or_nan(w.occupancy) for w in windows], color=colour)
            carried = [(w.frames - w.empty_frames) / w.frames if w.frames else math.nan for w in windows]
            axes[2].plot(times, carried, color=colour)
        axes[0].set_ylabel("sessions")
        axes[0].set_ylim(bottom=0)
        for panel, label in ((axes[1], "KV pool"), (axes[2], "with output")):
            panel.set_ylabel(label)
            share_axis(panel)
        legend(axes[0])
        time_axis(axes[2], max(run.windows[-1].t_s for run in shown))

    fell = [run.name for run in shown if run.collapsed]
    caption = "The same load and controller on each cache policy: sessions admitted, pool, share of frames "
    caption += "that carried output. " + (f"Collapsed: {', '.join(fell)}." if fell else "None collapsed.")
    return make_plot("Policies side by side", caption, paint, [0.7, 0.6, 0.5], "policies")
