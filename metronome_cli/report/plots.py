"""The plots of a report: what each shows, and how it is drawn (report/svg.py).

Every plot comes twice, for a wide page and for a phone, since text in a drawing shrinks with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from metronome_cli.report.facts import deciding_point, failing_point
from metronome_cli.report.model import Arm, Point, Report, TimelinePoint
from metronome_cli.report.svg import POINTS_PER_INCH, SERIES, STAND_IN, draw
from metronome_cli.report.thin import thin
from metronome_cli.report.words import duration, ms, plural

WIDE, NARROW = 720.0, 345.0
WINDOWS = 360  # a longer timeline is thinned to about this many
Paint = Callable[[Sequence[Axes]], None]


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of the page. `caption` says what is seen, for those who cannot see it too."""

    title: str
    caption: str
    wide: str
    narrow: str


def plots(report: Report) -> list[Plot]:
    """Every plot that the report has data for."""
    found = [curve(report), *timelines(report), stages(report), arms(report), forecast(report)]
    return [plot for plot in found if plot is not None]


def _plot(title: str, caption: str, paint: Paint, heights: Sequence[float], key: str) -> Plot:
    tall = 60 + 150 * sum(heights)
    return Plot(
        title,
        caption,
        draw(paint, (WIDE, tall), heights, key + "w"),
        draw(paint, (NARROW, tall), heights, key + "n"),
    )


# -- latency against the number of sessions --------------------------------------------------------


def curve(report: Report) -> Plot | None:
    """Percentiles of frame latency at every number of sessions, and the deadline."""
    points = best_points(report)
    if len(points) < 2:
        return None
    deadline_ms = deadline_of(report)

    def paint(axes: Sequence[Axes]) -> None:
        panel = axes[0]
        for name in ("max", "p99", "p90", "p50"):
            values = [_or_nan(getattr(point.latency_ms, name)) for point in points]
            panel.plot(
                [point.sessions for point in points], values, marker="o", color=STAND_IN[name], label=name
            )
        if deadline_ms is not None:
            _deadline(panel, deadline_ms)
        if report.capacity and report.capacity.safe_sessions is not None:
            safe = report.capacity.safe_sessions
            panel.axvline(safe, color=STAND_IN["muted"], linestyle=":", label=f"safe: {safe}")
        panel.set_xlabel("sessions")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        _latency_axis(panel, [point.latency_ms.max for point in points], deadline_ms)
        _legend(panel)

    smallest, largest = points[0], points[-1]
    caption = (
        f"Frame latency (answer available minus due time) from {smallest.sessions} to {largest.sessions} "
        f"sessions: p99 goes from {ms(smallest.latency_ms.p99)} to {ms(largest.latency_ms.p99)} ms"
    )
    caption += f", the deadline is {ms(deadline_ms)} ms." if deadline_ms is not None else "."
    return _plot("Latency against sessions", caption, paint, [1.3], "curve")


def best_points(report: Report) -> list[Point]:
    """For each number of sessions the measurement with most steps, smallest number first."""
    best: dict[int, Point] = {}
    for point in report.capacity.points if report.capacity else []:
        held = best.get(point.sessions)
        if point.latency_ms.p99 is not None and (held is None or point.steps > held.steps):
            best[point.sessions] = point
    return [best[sessions] for sessions in sorted(best)]


def deadline_of(report: Report) -> float | None:
    """The profile's deadline in milliseconds; its period where it names none."""
    frame = (report.profile or {}).get("frame")
    if not isinstance(frame, dict):
        return None
    given = frame.get("deadline") or frame.get("period")
    return given * 1e3 if isinstance(given, int | float) else None


def _deadline(panel: Axes, deadline_ms: float) -> None:
    label = f"deadline {ms(deadline_ms)} ms"
    panel.axhline(deadline_ms, color=STAND_IN["deadline"], linestyle="--", linewidth=1.4, label=label)


def _latency_axis(panel: Axes, latencies: Iterable[float | None], deadline_ms: float | None) -> None:
    """From 0; logarithmic where the worst is many deadlines away."""
    worst = max((value for value in latencies if value is not None), default=0.0)
    if deadline_ms is not None and worst > 4 * deadline_ms:
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: ms(value)))
        panel.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    else:
        panel.set_ylim(0, 1.08 * max(worst, deadline_ms or 0.0, 1e-3))
    panel.set_ylabel("latency, ms")


def _legend(panel: Axes) -> None:
    entries = len(panel.get_legend_handles_labels()[0])
    columns = max(2, int(panel.figure.bbox.width / panel.figure.dpi * POINTS_PER_INCH // 105))
    panel.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=min(columns, entries))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


# -- a run in time ---------------------------------------------------------------------------------


def timelines(report: Report) -> list[Plot]:
    """The controller's ramp, the run that the answer rests on, and the one that failed."""
    deadline_ms = deadline_of(report)
    found = []
    if report.capacity is not None:
        ramp = report.capacity.ramp
        found.append(timeline("The controller's ramp", ramp, deadline_ms, "ramp"))
    decided, failed = deciding_point(report), failing_point(report)
    for key, point in (("decided", decided), ("failed", failed if failed is not decided else None)):
        if point is not None:
            title = f"{plural(point.sessions, 'session')}, {point.role}: {point.verdict}"
            found.append(timeline(title, point.timeline, deadline_ms, key, point))
    return [plot for plot in found if plot is not None]


def timeline(
    title: str,
    windows: Sequence[TimelinePoint],
    deadline_ms: float | None,
    key: str,
    point: Point | None = None,
) -> Plot | None:
    """Latency, sessions, pool and empty frames of one run on its own clock."""
    if len(windows) < 2:
        return None
    kept = thin(windows, WINDOWS)
    empties = sum(window.empty_frames for window in windows)
    collapse = point.collapse if point is not None else None

    def paint(axes: Sequence[Axes]) -> None:
        _latency_panel(axes[0], kept, deadline_ms)
        _sessions_panel(axes[1], kept)
        _pool_panel(axes[2], kept)
        if empties:
            _empty_panel(axes[3], kept)
        if collapse is not None:
            for panel in axes:
                panel.axvline(collapse.t_s, color=STAND_IN["empty"], linestyle=":", linewidth=1.4)
        _time_axis(axes[-1], windows[-1].t_s)

    heights = [0.7, 0.5, 0.4] + ([0.35] if empties else [])
    return _plot(title, _timeline_caption(windows, point), paint, heights, key)


def _timeline_caption(windows: Sequence[TimelinePoint], point: Point | None) -> str:
    worst = max((w.p99_ms for w in windows if w.p99_ms is not None), default=None)
    fullest = max((w.occupancy for w in windows if w.occupancy is not None), default=None)
    text = f"{duration(windows[-1].t_s)} on the run's clock. Highest p99 of a window {ms(worst)} ms; "
    text += (
        f"{sum(w.misses for w in windows):,} misses, {sum(w.empty_frames for w in windows):,} empty frames"
    )
    text += f"; pool at most {fullest * 100:.0f} % full." if fullest is not None else "."
    if point is not None and point.collapse is not None:
        text += (
            f" Dotted: the collapse at {duration(point.collapse.t_s)}; frames stay on time and carry nothing."
        )
    return text


def _times(windows: Sequence[TimelinePoint]) -> list[float]:
    return [window.t_s for window in windows]


def _latency_panel(panel: Axes, windows: Sequence[TimelinePoint], deadline_ms: float | None) -> None:
    for name in ("max", "p99", "p50"):
        values = [_or_nan(getattr(window, f"{name}_ms")) for window in windows]
        panel.plot(_times(windows), values, color=STAND_IN[name], label=name, linewidth=1.3)
    if deadline_ms is not None:
        _deadline(panel, deadline_ms)
    _latency_axis(panel, [window.max_ms for window in windows], deadline_ms)
    _legend(panel)


def _sessions_panel(panel: Axes, windows: Sequence[TimelinePoint]) -> None:
    times = _times(windows)
    panel.plot(times, [window.running for window in windows], color=STAND_IN["running"], label="running")
    if any(window.waiting for window in windows):
        panel.plot(times, [window.waiting for window in windows], color=STAND_IN["waiting"], label="waiting")
    caps = [_or_nan(window.cap) for window in windows]
    if not all(map(math.isnan, caps)):
        panel.plot(times, caps, color=STAND_IN["cap"], linestyle="--", drawstyle="steps-post", label="cap")
    panel.set_ylim(bottom=0)
    panel.set_ylabel("sessions")
    panel.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    _legend(panel)


def _pool_panel(panel: Axes, windows: Sequence[TimelinePoint]) -> None:
    values = [_or_nan(window.occupancy) for window in windows]
    panel.plot(_times(windows), values, color=STAND_IN["pool"])
    panel.fill_between(_times(windows), values, color=STAND_IN["pool"], alpha=0.15, linewidth=0)
    panel.set_ylabel("KV pool")
    _share_axis(panel)


def _empty_panel(panel: Axes, windows: Sequence[TimelinePoint]) -> None:
    """Share of the window's frames that carried nothing."""
    shares = [window.empty_frames / window.frames if window.frames else 0.0 for window in windows]
    panel.fill_between(_times(windows), shares, color=STAND_IN["empty"], step="pre", alpha=0.6, linewidth=0)
    panel.set_ylabel("empty")
    _share_axis(panel)


def _share_axis(panel: Axes) -> None:
    panel.set_ylim(-0.03, 1.06)
    panel.set_yticks([0.0, 0.5, 1.0], ["0 %", "50 %", "100 %"])


def _time_axis(panel: Axes, end_s: float) -> None:
    factor, unit = (1.0, "s") if end_s <= 180 else (60.0, "min") if end_s <= 10800 else (3600.0, "h")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / factor:g}"))
    panel.xaxis.set_major_locator(
        MaxNLocator(nbins=8, steps=[1, 2, 3, 6, 10] if factor > 1 else [1, 2, 5, 10])
    )
    panel.set_xlabel(f"time on the run's clock, {unit}")
    panel.set_xlim(left=0)


# -- where a step's time goes ----------------------------------------------------------------------


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
            panel.bar(places, values, bottom=bottom, color=colour, label=_short(name), width=0.62)
            bottom = [low + value for low, value in zip(bottom, values, strict=True)]
        if deadline_ms is not None and max(bottom) > 0.4 * deadline_ms:
            _deadline(panel, deadline_ms)
        panel.set_xticks(places, [f"{point.sessions}" for point in points])
        panel.set_xlim(-0.5, max(len(points), 6) - 0.5)  # few bars stay slim
        panel.set_xlabel("sessions")
        panel.set_ylabel("mean step, ms")
        panel.grid(visible=False, axis="x")
        _legend(panel)

    last = points[-1]
    split = ", ".join(f"{name} {ms(value)} ms" for name, value in last.stages_ms.items())
    caption = f"Mean time of each stage of an engine step. At {plural(last.sessions, 'session')}: {split}."
    return _plot("Where a step's time goes", caption, paint, [1.0], "stages")


def _short(name: str) -> str:
    """A name for a legend: one line of bounded length; a leading underscore would hide it."""
    plain = "".join(char if char.isprintable() else " " for char in name).lstrip("_")
    return plain[:32] or "-"


# -- policies under the same controller ------------------------------------------------------------


def arms(report: Report) -> Plot | None:
    """The same controller and callers on different caches."""
    shown: list[Arm] = [arm for arm in report.arms if len(arm.timeline) > 1][: len(SERIES)]
    if not shown:
        return None

    def paint(axes: Sequence[Axes]) -> None:
        for index, arm in enumerate(shown):
            windows = thin(arm.timeline, WINDOWS)
            times, colour = _times(windows), STAND_IN[SERIES[index]]
            axes[0].plot(times, [w.sessions for w in windows], color=colour, label=_short(arm.name))
            axes[1].plot(times, [_or_nan(w.occupancy) for w in windows], color=colour)
            carried = [(w.frames - w.empty_frames) / w.frames if w.frames else math.nan for w in windows]
            axes[2].plot(times, carried, color=colour)
        axes[0].set_ylabel("sessions")
        axes[0].set_ylim(bottom=0)
        for panel, label in ((axes[1], "KV pool"), (axes[2], "with output")):
            panel.set_ylabel(label)
            _share_axis(panel)
        _legend(axes[0])
        _time_axis(axes[2], max(arm.timeline[-1].t_s for arm in shown))

    fell = [arm.name for arm in shown if arm.collapsed]
    caption = (
        "The same callers and the same controller on each cache: sessions admitted, pool, share of frames "
    )
    caption += "that carried output. " + (f"Collapsed: {', '.join(fell)}." if fell else "None collapsed.")
    return _plot("Policies side by side", caption, paint, [0.7, 0.6, 0.5], "arms")


# -- the forecast ----------------------------------------------------------------------------------


def forecast(report: Report) -> Plot | None:
    """When each hazard comes, with its interval, against the session length."""
    given = report.forecast
    if given is None:
        return None
    spans = [("all together", given.t_sat_s)] + [(hazard.name, hazard.t_sat_s) for hazard in given.hazards]
    known = [(name, span) for name, span in spans if span.estimate is not None]
    if not known:
        return None

    def paint(axes: Sequence[Axes]) -> None:
        panel = axes[0]
        ends = []
        for row, (_, span) in enumerate(known):
            middle = span.estimate or 0.0
            low, high = (middle if end is None else end for end in (span.low, span.high))
            ends.append(max(middle, high))
            colour = STAND_IN["deadline" if row == 0 else "p90"]
            panel.plot([low, high], [row, row], color=colour, linewidth=5, alpha=0.35)
            panel.plot([middle], [row], color=colour, marker="o", markersize=7)
        if given.session_length_s is not None:
            ends.append(given.session_length_s)
            label = f"session length {duration(given.session_length_s)}"
            panel.axvline(given.session_length_s, color=STAND_IN["ink"], linestyle="--", label=label)
            _legend(panel)
        panel.set_yticks(range(len(known)), [_short(name) for name, _ in known])
        panel.set_ylim(len(known) - 0.5, -0.5)
        _time_axis(panel, max(ends))
        panel.set_xlabel(panel.get_xlabel().replace("time on the run's clock", "time"))

    probability = given.collapse_probability
    sure = (
        ""
        if probability is None
        else f", with probability {probability * 100:.0f} % within the session length"
    )
    caption = f"When the run ends by itself{sure}. Dot: best estimate; bar: interval."
    return _plot("When the run ends by itself", caption, paint, [0.25 + 0.16 * len(known)], "forecast")
