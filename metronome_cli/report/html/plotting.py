"""What every plot is made with: its two sizes, axes, legends and limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator

from metronome_cli.core.formatting import format_measured, format_ms, number
from metronome_cli.report.html.svg import POINTS_PER_INCH, STAND_IN, draw

WIDE, NARROW = 720.0, 345.0  # pixels; text in a drawing shrinks with it, so a phone gets one of its own
WINDOWS = 360  # a longer timeline is thinned to about this many
_WHOLE = (1, 2, 5, 10, 15, 30, 60)
Paint = Callable[[Sequence[Axes]], None]


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of the page. `caption` says what is seen, for those who cannot see it too."""

    title: str
    caption: str
    wide: str
    narrow: str


def make_plot(title: str, caption: str, paint: Paint, heights: Sequence[float], key: str) -> Plot:
    tall = 60 + 150 * sum(heights)
    return Plot(
        title,
        caption,
        draw(paint, (WIDE, tall), heights, key + "w"),
        draw(paint, (NARROW, tall), heights, key + "n"),
    )


def deadline_line(panel: Axes, deadline_ms: float) -> None:
    label = f"deadline {format_measured(deadline_ms, 'ms')}"
    panel.axhline(deadline_ms, color=STAND_IN["deadline"], linestyle="--", linewidth=1.4, label=label)


def latency_axis(panel: Axes, latencies: Iterable[float | None], deadline_ms: float | None) -> None:
    """From 0; logarithmic where the worst is many deadlines away."""
    worst = max((value for value in latencies if value is not None), default=0.0)
    if deadline_ms is not None and worst > 4 * deadline_ms:
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_ms(value)))
        panel.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    else:
        panel.set_ylim(0, 1.08 * max(worst, deadline_ms or 0.0, 1e-3))
    panel.set_ylabel("latency, ms")


def legend(panel: Axes) -> None:
    """Above the panel, in as many columns as the longest name allows, read line by line."""
    handles, names = panel.get_legend_handles_labels()
    room = panel.figure.bbox.width / panel.figure.dpi * POINTS_PER_INCH
    column = 42 + 5.6 * max(map(len, names), default=0)
    columns = min(max(1, int(room // column)), max(1, len(names)))
    order = [
        at for first in range(columns) for at in range(first, len(names), columns)
    ]  # it is filled by columns
    panel.legend(
        [handles[at] for at in order],
        [names[at] for at in order],
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns,
    )


def share_axis(panel: Axes) -> None:
    panel.set_ylim(-0.03, 1.06)
    panel.set_yticks([0.0, 0.5, 1.0], ["0 %", "50 %", "100 %"])


def time_axis(panel: Axes, end_s: float) -> None:
    end_s = max(end_s, panel.get_xlim()[1])  # windows may be out of order in a file that was made by hand
    factor, unit = (1.0, "s") if end_s <= 180 else (60.0, "min") if end_s <= 10800 else (3600.0, "h")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value / factor)))
    panel.xaxis.set_major_locator(MultipleLocator(tick_s(end_s, factor)))
    panel.set_xlabel(f"time on the run's clock, {unit}")
    panel.set_xlim(left=0)


def tick_s(end_s: float, factor: float) -> float:
    """Seconds between marks: whole units of `factor` seconds or round parts of one, at most eight marks."""
    least = end_s / factor / 8
    if least <= 0:
        return factor
    ten = 10.0 ** math.floor(math.log10(least))
    whole = factor > 1 and 1 <= least <= _WHOLE[-1]
    steps = _WHOLE if whole else tuple(ten * step for step in (1, 2, 5, 10))
    return factor * next((step for step in steps if step >= least * (1 - 1e-9)), steps[-1])


def or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def short(name: str) -> str:
    """A name for a legend: one line of bounded length; a leading underscore would hide it."""
    plain = "".join(char if char.isprintable() else " " for char in name).lstrip("_")
    return plain[:32] or "-"
