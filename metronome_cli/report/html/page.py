"""A report as one HTML file that opens offline: nothing fetched, light and dark, readable without its script.

Everything that comes from the run is escaped text. The page's own policy (Content-Security-Policy) allows one
script, by its hash, and no request. The script sorts tables, shows values under a pointer and saves the data.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape, unescape
from pathlib import Path
from typing import Any

from metronome_cli.core.files import write_text
from metronome_cli.core.formatting import format_utc
from metronome_cli.core.strict_json import dumps
from metronome_cli.report.conditions import conditions, flat, notes, server_of, settings_of
from metronome_cli.report.html.tiles import tiles_of
from metronome_cli.report.tables.report_tables import tables
from metronome_cli.report.tables.table import Table
from metronome_cli.results.run_report import Report

_STYLE = Path(__file__).with_name("page.css")
SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
_HASH = b64encode(sha256(SCRIPT.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; script-src 'sha256-{_HASH}'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
_VERDICTS = ("pass", "fail", "inconclusive")


def write_html(report: Report, path: Path) -> Path:
    """Write the page, whole or not at all. Raises MetronomeError where the disk refuses."""
    return write_text(path, render_html(report))


def render_html(report: Report) -> str:
    """The whole page."""
    body = [
        _header(report),
        _tiles(report),
        _notes(report),
        *_figures(report),
        *[_table(table) for table in tables(report)],
        "<h2>Conditions</h2>",
        _facts(conditions(report)),
        *_settings(report),
        f"<footer>Made by metronome {text(report.version)}. Report format {text(report.schema_)}. "
        "Times are on the run's own clock unless said otherwise. "
        '<button id="download" type="button" hidden>Download the data (JSON)</button></footer>',
        f'<script type="application/json" id="report-data">{_data(report)}</script>',
        f"<script>{SCRIPT}</script>",
    ]
    page = "\n".join(part for part in body if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(_title(report))}</title>\n<style>\n{_STYLE.read_text(encoding='utf-8')}</style>\n"
        f"</head>\n<body>\n{_anchored(page)}\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Anything as escaped text, without characters that a page must not hold."""
    plain = str(value).encode("utf-8", "replace").decode("utf-8")
    return escape("".join(char if char.isprintable() or char == " " else " " for char in plain))


def _data(report: Report) -> str:
    """The report as JSON that no browser takes for markup."""
    given = json.dumps(json.loads(dumps(report.model_dump(mode="json", by_alias=True))))
    return given.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _anchored(page: str) -> str:
    """Each heading gets an id from its words, and a link to itself."""
    used: Counter[str] = Counter()

    def anchor(match: re.Match[str]) -> str:
        name = re.sub(r"[^a-z0-9]+", "-", unescape(match[1]).lower()).strip("-")[:60] or "part"
        used[name] += 1
        name += f"-{used[name]}" if used[name] > 1 else ""
        return f'<h2 id="part-{name}">{match[1]} <a class="anchor" href="#part-{name}" aria-label="link">#</a></h2>'

    return re.sub(r"<h2>(.*?)</h2>", anchor, page)


def _tiles(report: Report) -> str:
    found = tiles_of(report)
    items = "".join(
        f'<li class="{tile.kind}"><span>{text(tile.name)}</span><strong>{text(tile.value)}</strong>'
        f"<small>{text(tile.note)}</small></li>"
        for tile in found
    )
    return f'<ul class="tiles">{items}</ul>' if found else ""


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
