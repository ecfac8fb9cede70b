"""Draws with Matplotlib and hands back SVG that sits inside a page: themed by its CSS, unique ids, no script.

Colours in the drawing are stand-ins, one for each role; in the SVG they become CSS variables, so one drawing
serves light and dark. Text stays text (the page's font, selectable); `$` in a name is a dollar sign.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from metronome_cli.report.html.matplotlib_quiet import matplotlib_quiet

# role -> stand-in; report/html/page.css has a variable of each name
ROLES = (
    "ink", "muted", "grid", "paper", "p50", "p90", "p99", "max", "deadline", "running", "waiting", "cap",
    "pool", "empty", "series-1", "series-2", "series-3", "series-4", "series-5", "series-6",
)  # fmt: skip
STAND_IN = {role: f"#01{index:02x}fe" for index, role in enumerate(ROLES)}
SERIES = tuple(f"series-{index}" for index in range(1, 7))
POINTS_PER_INCH = 72

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "metronome",
    "text.parse_math": False,
    "text.color": STAND_IN["ink"],
    "axes.labelcolor": STAND_IN["muted"],
    "axes.edgecolor": STAND_IN["muted"],
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.labelsize": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "figure.facecolor": "none",
    "font.size": 10,
    "grid.color": STAND_IN["grid"],
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 1.6,
    "legend.borderaxespad": 0.2,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "xtick.color": STAND_IN["muted"],
    "ytick.color": STAND_IN["muted"],
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
}


def draw(
    paint: Callable[[Sequence[Axes]], None], size: tuple[float, float], heights: Sequence[float], key: str
) -> str:
    """SVG of panels one above the other, sharing their x axis.

    `size` in CSS pixels; `heights` are the panels' shares; `key` makes the ids of this drawing its own.
    `paint` gets the axes from top to bottom.
    """
    with matplotlib_quiet(), matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(size[0] / POINTS_PER_INCH, size[1] / POINTS_PER_INCH), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=list(heights), squeeze=False)
        paint(list(axes[:, 0]))
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return inline(stream.getvalue(), key)


def inline(svg: str, key: str) -> str:
    """An SVG document as an element of a page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<style type=\"text/css\">.*?</style>", "", svg, flags=re.DOTALL)
    view_box = re.search(r'viewBox="([\d. ]+)"', svg)
    assert view_box is not None
    svg = re.sub(r"<svg[^>]*>", f'<svg viewBox="{view_box[1]}" aria-hidden="true">', svg, count=1)
    svg = re.sub(r'\bid="(?!figure|axes|text|xtick|ytick|line2d|patch|legend)', f'id="{escape(key)}-', svg)
    svg = re.sub(r' id="(?:figure|axes|text|xtick|ytick|line2d|patch|legend)[^"]*"', "", svg)
    svg = svg.replace("url(#", f"url(#{key}-").replace('xlink:href="#', f'href="#{key}-')
    svg = re.sub(r"; font-family: [^;\"]*(?=[;\"])", "", svg)
    svg = re.sub(r' transform="rotate\(-0 [\d. -]+\)"', "", svg)
    for role, stand_in in STAND_IN.items():
        svg = svg.replace(stand_in, f"var(--{role})")
    return re.sub(r"\n\s*", "\n", svg).strip()
