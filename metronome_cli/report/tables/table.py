"""A table as data, the same for text, HTML and Markdown: a title, columns, rows of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metronome_cli.core.formatting import NO_DATA


@dataclass(frozen=True, slots=True)
class Column:
    """`matters`: columns with less go below their row first where there is no room beside the others; 9 never does.

    `below`: a sentence, which goes below its row where there is too little room beside it.
    """

    name: str
    matters: int = 9
    text: bool = False  # left-aligned
    below: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of as many cells as there are columns."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


def without_empty_columns(table: Table) -> Table:
    """Leave out a column that is empty in every row."""
    kept = [i for i in range(len(table.columns)) if any(row[i] not in ("", NO_DATA) for row in table.rows)]
    return Table(
        table.title, [table.columns[i] for i in kept], [[row[i] for i in kept] for row in table.rows]
    )
