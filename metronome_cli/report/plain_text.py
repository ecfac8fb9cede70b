"""A report as plain text: the answer first, then what it rests on. ASCII of its own, no control codes."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from metronome_cli.core.formatting import NO_DATA
from metronome_cli.report.conditions import conditions, notes
from metronome_cli.report.tables.report_tables import tables
from metronome_cli.report.tables.surface_tables import small_plot
from metronome_cli.report.tables.table import Column, Table
from metronome_cli.results.run_report import Report

PIPE_WIDTH = 100  # columns where no terminal says how many
_LEAST_TEXT = 14  # a column of text is wrapped into at least this
_SHORT_TEXT = 24  # and one of a few words into its longest word
_LEAST_SENTENCE = 36  # and a sentence, or it goes below its row
_GAP = "  "


def render_text(report: Report, width: int | None = None) -> str:
    """The report in lines of at most `width` columns (the terminal's, 100 in a pipe), no final newline."""
    width = max(30, width or stdout_width())
    blocks = [fill(report.summary or "No answer.", width)]
    blocks += [render_table(table, width) for table in tables(report)]
    blocks.append(small_plot(report, width))
    blocks.append(_facts(conditions(report), width))
    blocks.append("\n".join(fill(note, width) for note in notes(report)))
    return "\n\n".join(block for block in blocks if block)


def stdout_width() -> int:
    """Columns of the terminal on stdout; 100 where it is none, unless COLUMNS says otherwise."""
    return shutil.get_terminal_size((PIPE_WIDTH if not sys.stdout.isatty() else 80, 24)).columns


def fill(text: str, width: int, indent: str = "") -> str:
    """Text wrapped between words; control characters are taken out."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return textwrap.fill(
        plain,
        width,
        initial_indent="",
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=True,
    )


def _facts(facts: Sequence[tuple[str, str]], width: int) -> str:
    label = max((len(name) for name, _ in facts), default=0) + len(_GAP)
    return "\n".join(fill(name.ljust(label) + value, width, indent=" " * label) for name, value in facts)


def render_table(table: Table, width: int) -> str:
    """A table within `width`: names and text are wrapped inside their columns; columns that have no room even then
    go below their row, those that matter less first. No cell with data is left out.
    """
    beside, sentences = _sentences_below(table, width)
    keep = _columns_that_fit(beside, width)
    columns = [beside.columns[index] for index in keep]
    widths = _widths(beside, keep, width)
    named = any(column.name for column in columns)
    lines = _lines([column.name for column in columns], columns, widths, names=True) if named else []
    indent = " " * (widths[0] + len(_GAP)) if widths else ""
    for row, sentence in zip(beside.rows, sentences or [""] * len(beside.rows), strict=True):
        lines += _lines([_cell(row[index]) for index in keep], columns, widths)
        below = "; ".join(filter(None, [_pairs(beside, row, keep), sentence]))
        lines += [fill(indent + below, width, indent)] if below else []
    return "\n".join([fill(table.title, width), *lines])


def _pairs(table: Table, row: Sequence[str], keep: Sequence[int]) -> str:
    """ "run confirm, p50 ms 16": the cells of a row that have no column."""
    return ", ".join(
        f"{column.name} {cell}".strip()
        for index, (column, cell) in enumerate(zip(table.columns, row, strict=True))
        if index not in keep and cell.strip() not in ("", NO_DATA)
    )


def _sentences_below(table: Table, width: int) -> tuple[Table, list[str]]:
    """The table without its column of sentences, and those, where they have too little room beside the others."""
    found = [index for index, column in enumerate(table.columns) if column.below]
    if not found:
        return table, []
    others = [index for index in range(len(table.columns)) if index not in found]
    rest = Table(
        table.title, [table.columns[i] for i in others], [[row[i] for i in others] for row in table.rows]
    )
    used = sum(_widest(rest, index) + len(_GAP) for index in range(len(others)))
    if width - used >= min(_widest(table, found[0]), _LEAST_SENTENCE):
        return table, []
    return rest, [row[found[0]] for row in table.rows]


def _cell(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _columns_that_fit(table: Table, width: int) -> list[int]:
    keep = [
        index for index in range(len(table.columns)) if any(text.strip() for text in _texts(table, index))
    ]
    while len(keep) > 2 and sum(_least(table, index) + len(_GAP) for index in keep) - len(_GAP) > width:
        worst = min(keep, key=lambda index: table.columns[index].matters)
        if table.columns[worst].matters == 9:
            break
        keep.remove(worst)
    return keep


def _widest(table: Table, index: int) -> int:
    return max(map(len, _texts(table, index)))


def _texts(table: Table, index: int) -> list[str]:
    return [table.columns[index].name, *(row[index] for row in table.rows)]


def _least(table: Table, index: int) -> int:
    """Figures need their width; names and text are wrapped between words, but not into a column of single words."""
    column, cells = table.columns[index], [row[index] for row in table.rows]
    if not column.text:
        return max(map(len, [*column.name.split(), *cells]), default=0)
    widest = _widest(table, index)
    word = max((len(word) for text in (column.name, *cells) for word in text.split()), default=0)
    return word if widest <= _SHORT_TEXT else min(widest, max(_LEAST_TEXT, min(word, _SHORT_TEXT)))


def _widths(table: Table, keep: Sequence[int], width: int) -> list[int]:
    """Each column's width: its widest cell, made narrower where the line is too long."""
    widths = {index: _widest(table, index) for index in keep}
    while (over := sum(widths.values()) + len(_GAP) * (len(keep) - 1) - width) > 0:
        room = {index: widths[index] - _least(table, index) for index in keep}
        index = max(room, key=lambda index: room[index], default=-1)
        if index < 0 or room[index] <= 0:
            break
        widths[index] -= min(over, room[index])
    return [widths[index] for index in keep]


def _lines(
    row: Sequence[str], columns: Sequence[Column], widths: Sequence[int], *, names: bool = False
) -> list[str]:
    """A row on as many lines as its longest cell needs; figures stay on one, the names above them need not."""
    cells = [
        textwrap.wrap(cell, size, break_on_hyphens=False) or [""] if column.text or names else [cell]
        for cell, column, size in zip(row, columns, widths, strict=True)
    ]
    return [
        _GAP.join(
            (cell[line] if line < len(cell) else "").ljust(size)
            if column.text
            else (cell[line] if line < len(cell) else "").rjust(size)
            for cell, column, size in zip(cells, columns, widths, strict=True)
        ).rstrip()
        for line in range(max(map(len, cells), default=0))
    ]
