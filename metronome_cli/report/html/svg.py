"""Draws with Matplotlib and hands back SVG that sits inside a page: themed by its CSS, unique ids, no script.

Colours in the drawing are stand-ins, one for each role; in the SVG they become CSS variables, so one drawing
serves light and dark. Text stays text (the page's font, selectable); `$` in a name is a dollar sign.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from metronome_cli.core.strict_json import dumps
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
        panels = [panel for panel in map(_hover, axes[:, 0]) if panel["lines"]]
    return inline(stream.getvalue(), key, panels)


def _hover(panel: Axes) -> dict[str, Any]:
    """What a pointer over the panel shows: its box and limits, and every named line's values.

    The box is [left, top, right, bottom] in shares of the drawing; `factor`: units of x per unit of its label.
    """
    place, label = panel.get_position(), panel.get_xlabel()
    lines = [
        {"name": str(line.get_label()), "x": _rounded(points[:, 0]), "y": _rounded(points[:, 1])}
        for line in panel.get_lines()
        if not str(line.get_label()).startswith("_")
        and len(points := np.asarray(line.get_xydata(), dtype=float)) > 2
    ]
    unit = label.rpartition(", ")[2]
    return {
        "box": [round(value, 4) for value in (place.x0, 1 - place.y1, place.x1, 1 - place.y0)],
        "x": _rounded(panel.get_xlim()),
        "log": panel.get_xscale() == "log",
        "label": label,
        "factor": {"min": 60, "h": 3600}.get(unit, 1) if "time" in label else 1,
        "lines": lines,
    }


def _rounded(values: Any) -> list[float | None]:
    """Four significant digits; None where there is no value."""
    return [None if not math.isfinite(value) else float(f"{value:.4g}") for value in map(float, values)]


def inline(svg: str, key: str, hover: Sequence[dict[str, Any]] = ()) -> str:
    """An SVG document as an element of a page, with what its panels show under a pointer."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<style type=\"text/css\">.*?</style>", "", svg, flags=re.DOTALL)
    view_box = re.search(r'viewBox="([\d. ]+)"', svg)
    assert view_box is not None
    values = f' data-hover="{escape(dumps(hover))}"' if hover else ""
    head = f'<svg viewBox="{view_box[1]}" aria-hidden="true"{values}>'
    svg = re.sub(r"<svg[^>]*>", lambda _: head, svg, count=1)
    svg = re.sub(r'\bid="(?!figure|axes|text|xtick|ytick|line2d|patch|legend)', f'id="{escape(key)}-', svg)
    svg = re.sub(r' id="(?:figure|axes|text|xtick|ytick|line2d|patch|legend)[^"]*"', "", svg)
    svg = svg.replace("url(#", f"url(#{key}-").replace('xlink:href="#', f'href="#{key}-')
    svg = re.sub(r"; font-family: [^;\"]*(?=[;\"])", "", svg)
    svg = re.sub(r' transform="rotate\(-0 [\d. -]+\)"', "", svg)
    for role, stand_in in STAND_IN.items():
        svg = svg.replace(stand_in, f"var(--{role})")
    return re.sub(r"\n\s*", "\n", svg).strip()
