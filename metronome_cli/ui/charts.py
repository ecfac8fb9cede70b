"""Charts of characters: a curve of bars with a limit line and a projection, horizontal bars, a grid of cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text

from metronome_cli.ui.glyphs import Glyphs

AXIS = 6  # cells of the axis at the left of a curve


def resample(values: Sequence[float | None], width: int) -> list[float | None]:
    """`width` columns, each with the largest value of its share of `values`; None where it has no value."""
    found: list[float | None] = []
    for column in range(width):
        first = column * len(values) // width
        part = values[first : max(first + 1, (column + 1) * len(values) // width)]
        known = [value for value in part if value is not None]
        found.append(max(known) if known else None)
    return found


def curve(
    values: Sequence[float | None],
    size: tuple[int, int],
    top: float,
    glyphs: Glyphs,
    *,
    limit: float | None = None,
    ahead: Sequence[float] = (),
    style: Callable[[float], str] = lambda _: "green",
    label: Callable[[float], str] = lambda value: f"{value:.0f}",
) -> list[Text]:
    """Bars of `values`, then `ahead` as dots, in (width, height) cells; a line of dashes at `limit`."""
    width, height = size
    room = max(4, width - AXIS)
    seen = room if not ahead else max(1, round(room * len(values) / (len(values) + len(ahead))))
    columns = resample(values, seen)
    future = resample(list(ahead), room - seen) if ahead and room > seen else []
    limit_row = None if limit is None or not 0 < limit <= top else min(height - 1, int(limit / top * height))
    lines = []
    for row in reversed(range(height)):
        line = Text(_axis(row, height, top, limit if row == limit_row else None, label), "dim")
        for value in columns:
            cell = _cell(value, row, height, top, glyphs)
            line.append(cell, style(value) if value is not None and cell != " " else "")
            if cell == " " and row == limit_row:
                line.right_crop(1)
                line.append(glyphs.line, "red")
        for value in future:
            there = value is not None and min(height - 1, int(value / top * height)) == row
            mark = glyphs.dot if there else glyphs.line if row == limit_row else " "
            line.append(mark, "cyan" if there else "red")
        lines.append(line)
    return lines


def _axis(row: int, height: int, top: float, limit: float | None, label: Callable[[float], str]) -> str:
    value = limit if limit is not None else top if row == height - 1 else 0.0 if row == 0 else None
    return ("" if value is None else label(value)[: AXIS - 1]).rjust(AXIS - 1) + " "


def _cell(value: float | None, row: int, height: int, top: float, glyphs: Glyphs) -> str:
    if value is None or top <= 0:
        return " "
    steps = len(glyphs.levels)
    filled = round(min(1.0, max(0.0, value / top)) * height * steps) - row * steps
    if row == 0 and filled <= 0:
        return glyphs.levels[0]
    return " " if filled <= 0 else glyphs.levels[min(steps, filled) - 1]


def bars(rows: Sequence[tuple[str, float, str]], width: int, glyphs: Glyphs) -> list[Text]:
    """A label, a bar in proportion to the largest value, and the value, per row of (label, value, style)."""
    most = max((value for _, value, _ in rows), default=0.0)
    labels = max((len(label) for label, _, _ in rows), default=0)
    figures = max((len(f"{value:,.0f}") for _, value, _ in rows), default=0)
    room = max(1, width - labels - figures - 2)
    lines = []
    for label, value, style in rows:
        cells = max(1, round(room * value / most)) if value > 0 and most > 0 else 0
        line = Text(label.rjust(labels) + " ", "dim").append(glyphs.bar[0] * cells, style)
        lines.append(line.append(f" {value:,.0f}"))
    return lines


def grid(cells: Sequence[tuple[str, str]], size: tuple[int, int]) -> list[Text]:
    """One character per cell of (character, style), with a gap if there is room, cut to (width, height)."""
    width, height = size
    gap = " " if len(cells) <= (width // 2) * height else ""
    per_line = max(1, width // (1 + len(gap)))
    shown = cells[: per_line * height]
    lines = []
    for first in range(0, len(shown), per_line):
        line = Text()
        for mark, style in shown[first : first + per_line]:
            line.append(mark, style).append(gap)
        lines.append(line)
    return lines
