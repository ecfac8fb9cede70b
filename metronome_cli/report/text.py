"""A report as plain text: the answer first, then what it rests on. ASCII of its own, no control codes."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from metronome_cli.report.facts import conditions, notes
from metronome_cli.report.model import Report
from metronome_cli.report.tables import Column, Table, tables

PIPE_WIDTH = 100  # columns where no terminal says how many
_LEAST_TEXT = 24  # a last column of text is wrapped into at least this
_GAP = "  "


def render_text(report: Report, width: int | None = None) -> str:
    """The report in lines of at most `width` columns (the terminal's, 100 in a pipe), no final newline."""
    width = max(30, width or stdout_width())
    blocks = [fill(report.answer or "No answer.", width)]
    blocks += [render_table(table, width) for table in tables(report)]
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
    """A table within `width`: columns that matter less are left out, a last column of text is wrapped."""
    keep = _columns_that_fit(table, width)
    columns = [table.columns[index] for index in keep]
    rows = [[_cell(row[index]) for index in keep] for row in table.rows]
    widths = [max(len(column.name), *(len(row[i]) for row in rows)) for i, column in enumerate(columns)]
    widths[-1] = min(widths[-1], max(_LEAST_TEXT, width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)))
    head = [] if not any(column.name for column in columns) else [[column.name for column in columns]]
    lines = [_line(row, columns, widths) for row in head + rows]
    return "\n".join([table.title, *lines])


def _cell(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _columns_that_fit(table: Table, width: int) -> list[int]:
    keep = list(range(len(table.columns)))
    while len(keep) > 2 and _least_width(table, keep) > width:
        worst = min(keep, key=lambda index: table.columns[index].matters)
        if table.columns[worst].matters == 9:
            break
        keep.remove(worst)
    return keep


def _least_width(table: Table, keep: Sequence[int]) -> int:
    total = len(_GAP) * (len(keep) - 1)
    for place, index in enumerate(keep):
        column = table.columns[index]
        widest = max(len(column.name), *(len(row[index]) for row in table.rows))
        last = place == len(keep) - 1
        total += min(widest, _LEAST_TEXT) if last and column.text else widest
    return total


def _line(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    last = len(row) - 1
    cells = [
        cell.ljust(size) if column.text else cell.rjust(size)
        for cell, column, size in zip(row[:last], columns, widths, strict=False)
    ]
    lead = "".join(cell + _GAP for cell in cells)
    if not columns[last].text:
        return (lead + row[last].rjust(widths[last])).rstrip()
    wrapped = textwrap.wrap(row[last], widths[last]) or [""]
    return "\n".join(
        ((lead if index == 0 else " " * len(lead)) + piece).rstrip() for index, piece in enumerate(wrapped)
    )
