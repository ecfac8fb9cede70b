"""A report as one HTML file that opens offline: no script, nothing fetched, light and dark.

Everything that comes from the run is escaped text; the page's own policy (Content-Security-Policy) forbids
scripts and requests besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from metronome_cli.core.files import write_text
from metronome_cli.core.formatting import format_utc
from metronome_cli.report.conditions import conditions, flat, notes, server_of, settings_of
from metronome_cli.report.tables.report_tables import tables
from metronome_cli.report.tables.table import Table
from metronome_cli.results.run_report import Report

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = Path(__file__).with_name("page.css")
_VERDICTS = ("pass", "fail", "inconclusive")


def write_html(report: Report, path: Path) -> Path:
    """Write the page, whole or not at all. Raises MetronomeError where the disk refuses."""
    return write_text(path, render_html(report))


def render_html(report: Report) -> str:
    """The whole page."""
    body = [
        _header(report),
        _notes(report),
        *_figures(report),
        *[_table(table) for table in tables(report)],
        "<h2>Conditions</h2>",
        _facts(conditions(report)),
        *_settings(report),
        f"<footer>Made by metronome {text(report.version)}. Report format {text(report.schema_)}. "
        "Times are on the run's own clock unless said otherwise.</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(_title(report))}</title>\n<style>\n{_STYLE.read_text(encoding='utf-8')}</style>\n"
        "</head>\n<body>\n" + "\n".join(part for part in body if part) + "\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Anything as escaped text, without characters that a page must not hold."""
    plain = str(value).encode("utf-8", "replace").decode("utf-8")
    return escape("".join(char if char.isprintable() or char == " " else " " for char in plain))


def _title(report: Report) -> str:
    name = server_of(report) or (report.profile or {}).get("title") or (report.profile or {}).get("name")
    return f"metronome {report.command}" + (f": {name}" if name else "")


def _header(report: Report) -> str:
    badges: list[tuple[str, str]] = [(report.verdict, report.verdict)] if report.verdict else []
    if report.status != "complete":
        badges.append((report.status, "caution"))
    if report.weights == "random":
        badges.append(("random weights", "caution"))
    if report.clock:
        badges.append((f"{report.clock} clock", "caution" if report.clock == "virtual" else ""))
    badges.append((format_utc(report.started_at), ""))
    items = "".join(f'<li class="{kind}">{text(label)}</li>' for label, kind in badges)
    return (
        f"<header><h1>{text(_title(report))}</h1>\n"
        f'<p class="answer">{text(report.summary or "No answer.")}</p>\n<ul class="badges">{items}</ul></header>'
    )


def _notes(report: Report) -> str:
    found = notes(report)
    return f'<ul class="notes">{"".join(f"<li>{text(note)}</li>" for note in found)}</ul>' if found else ""


def _figures(report: Report) -> Iterable[str]:
    from metronome_cli.report.html.matplotlib_quiet import matplotlib_quiet

    with matplotlib_quiet():
        from metronome_cli.report.html.plots import plots

    for plot in plots(report):
        label = f"{plot.title}. {plot.caption}"
        yield (
            f"<h2>{text(plot.title)}</h2>\n<figure>"
            f'<div class="wide" role="img" aria-label="{text(label)}">{plot.wide}</div>'
            f'<div class="narrow" role="img" aria-label="{text(label)}">{plot.narrow}</div>'
            f"<figcaption>{text(plot.caption)}</figcaption></figure>"
        )


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_text_class(column.text)}>{text(column.name)}</th>' for column in table.columns
    )
    head = f"<thead><tr>{head}</tr></thead>" if any(column.name for column in table.columns) else ""
    rows = "\n".join(_row(table, row) for row in table.rows)
    return f'<h2>{text(table.title)}</h2>\n<div class="scroll"><table>{head}\n<tbody>{rows}</tbody></table></div>'


def _row(table: Table, row: Sequence[str]) -> str:
    verdict = next((cell for cell in row if cell in _VERDICTS), "")
    cells = []
    for column, cell in zip(table.columns, row, strict=True):
        kinds = ["text" if column.text else "num"]
        kinds += [column.name] if column.name in ("verdict", "why") else []
        cells.append(f'<td class="{" ".join(kinds)}">{text(cell)}</td>')
    return f'<tr class="{verdict}">{"".join(cells)}</tr>'


def _text_class(is_text: bool) -> str:
    return ' class="text"' if is_text else ""


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<dt>{text(name)}</dt><dd>{text(value)}</dd>' for name, value in facts)}</dl>"


def _settings(report: Report) -> Iterable[str]:
    gains = report.capacity.controller if report.capacity else {}
    sections: Sequence[tuple[str, Mapping[str, Any] | None]] = (
        ("Probe", report.probe.model_dump() if report.probe else None),
        ("Settings", {"argv": " ".join(report.argv), **settings_of(report)}),
        ("Controller's gains", gains),
        ("Profile", report.profile),
        ("Engine", report.backend),
        ("Environment", report.environment),
        ("Forecast's assumptions", _assumptions(report)),
        ("Audio files", {file.file: _audio(file.seconds, file.notes) for file in report.audio.files_used}),
    )
    for title, section in sections:
        if section:
            yield f"<details><summary>{text(title)}</summary>{_facts(flat(section))}</details>"


def _assumptions(report: Report) -> dict[str, Any]:
    given = report.forecast
    if given is None:
        return {}
    listed = {str(number): line for number, line in enumerate(given.assumptions, start=1)}
    return {**listed, **given.details}


def _audio(seconds: float | None, notes: Sequence[str]) -> str:
    length = "-" if seconds is None else f"{seconds:.1f} s"
    return "; ".join([length, *notes])
