"""A comparison for people: plain text, or Markdown for a pull request's comment."""

from __future__ import annotations

from metronome_cli.core.formatting import NO_DATA, duration, number
from metronome_cli.core.quantities import digits
from metronome_cli.report.compare.comparison import MetricChange, ReportComparison, value_text
from metronome_cli.report.plain_text import fill, render_table, stdout_width
from metronome_cli.report.tables.table import Column, Table, without_empty_columns

_SIGNS = {"pass": "pass", "fail": "**FAIL**", "inconclusive": "**inconclusive**"}
COLUMNS = [
    Column("metric", text=True), Column("base", 4), Column("new", 7), Column("change", 8), Column("in %", 8),
    Column("95 % interval", 3), Column("gate", 6, text=True), Column("verdict", text=True),
    Column("why", 1, text=True, below=True),
]  # fmt: skip


def render_compare_text(comparison: ReportComparison, width: int | None = None) -> str:
    """Plain text in at most `width` columns."""
    width = max(30, width or stdout_width())
    table = without_empty_columns(Table("Changes", COLUMNS, [_row(c) for c in _moving(comparison)]))
    blocks = [fill(comparison.answer, width), render_table(table, width) if table.rows else ""]
    blocks.append(
        "\n".join(fill(f"differs: {m.what}: {m.base} | {m.new}", width) for m in comparison.mismatches)
    )
    blocks.append("\n".join(fill(note, width) for note in [*_still(comparison), *comparison.notes]))
    return "\n\n".join(block for block in blocks if block)


def render_markdown(comparison: ReportComparison) -> str:
    """Markdown: a heading, a table, and what has to be known beside it."""
    lines = ["### metronome: " + markdown(comparison.answer), ""]
    if _moving(comparison):
        lines += [
            "| metric | base | new | change | in % | 95 % interval | gate | |",
            "|---|--:|--:|--:|--:|--:|---|---|",
        ]
        lines += [_markdown_row(change) for change in _moving(comparison)]
        lines.append("")
    lines += [
        f"- differs: {markdown(m.what)}: {markdown(m.base)}, {markdown(m.new)}" for m in comparison.mismatches
    ]
    lines += [f"- {markdown(note)}" for note in [*_still(comparison), *comparison.notes]]
    reports = f"{comparison.base_reports} base and {comparison.new_reports} new"
    lines += ["", f"<sub>{reports} reports; compared by metronome</sub>"]
    return "\n".join(lines)


def _moving(comparison: ReportComparison) -> list[MetricChange]:
    """What moved, is gated, or lacks data on a side."""
    return [change for change in comparison.changes if change.gate or change.change != 0]


def _still(comparison: ReportComparison) -> list[str]:
    same = [change.metric for change in comparison.changes if not change.gate and change.change == 0]
    return [f"Without change: {', '.join(same)}."] if same else []


def markdown(text: str) -> str:
    """Text that stays text: no table, no markup, no HTML, no mention of a person."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    for char in "\\`*_[]|#~":
        plain = plain.replace(char, "\\" + char)
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@\u200b")


def _markdown_row(change: MetricChange) -> str:
    metric, base, new, moved, relative, ends, gate, _, why = _row(change)
    said = _SIGNS[change.verdict] if change.verdict else ""
    said += f": {markdown(why)}" if why and change.verdict != "pass" else ""
    return (
        f"| {markdown(metric)} | {base} | {new} | {moved} | {relative} | {ends} | {markdown(gate)} | {said} |"
    )


def _row(change: MetricChange) -> list[str]:
    return [
        change.metric,
        value_text(change.base, change.unit),
        value_text(change.new, change.unit),
        NO_DATA if change.change is None else _signed(change.change, change.unit),
        _relative(change),
        _ends(change),
        change.gate or "",
        change.verdict or "",
        change.reason,
    ]


def _signed(value: float, unit: str) -> str:
    if unit == "fraction":
        return f"{'+' if value > 0 else ''}{digits(value * 100, 2)} points"
    if unit == "s":
        return ("-" if value < 0 else "+") + duration(abs(value))
    sign = "-" if value < 0 else "+" if value > 0 else ""
    size = digits(abs(value), 3) if abs(value) < 1000 else number(abs(round(value)))
    return sign + size + (f" {unit}" if unit == "ms" else "")


def _relative(change: MetricChange) -> str:
    return (
        NO_DATA if change.relative is None or change.unit == "fraction" else f"{change.relative * 100:+.1f} %"
    )


def _ends(change: MetricChange) -> str:
    if change.low is None or change.high is None:
        return NO_DATA
    return f"{_signed(change.low, change.unit)} to {_signed(change.high, change.unit)}"
