"""The live view's text: a snapshot in, lines out, none wider than asked.

A row is a label and cells; cells that do not fit go on to the next line under the same label, so that
nothing is lost at 40 columns. A late step is red and an empty one magenta; the line under the strip says
so without colour: `L` and `E`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.text import Text

from metronome_cli.core.formatting import (
    format_limit,
    format_measured,
    format_ms,
    format_seconds,
    percent,
    plural,
    time_line,
)
from metronome_cli.results.events import BatchKind, HeardNow, Snapshot
from metronome_cli.ui.glyphs import Glyphs, bar, level, printable
from metronome_cli.ui.history import ViewHistory
from metronome_cli.ui.panels import arrange, panels_of

LABEL = 10
LEAST_FOR_PANELS = 16  # lines of a terminal
LEAST_ROWS = 9  # lines above the panels
ROWS_SHARE = 0.36  # of the height, for the lines above the panels
KEYS_HELP = "q stop and report what was measured (again: leave at once)   p hold the picture   ? this line"
GAP = 2
KIND_STYLES: dict[BatchKind, str] = {"ok": "green", "late": "bold red", "empty": "bold magenta"}
KIND_MARKS: dict[BatchKind, str] = {"ok": " ", "late": "L", "empty": "E"}
STAGE_STYLES = ("cyan", "blue", "green", "yellow", "magenta", "white")


@dataclass(slots=True)
class DashboardState:
    """What the live view knows beside the last snapshot."""

    title: str = "metronome"
    phase: str = ""
    detail: str = ""
    elapsed_s: float = 0.0
    snapshot: Snapshot | None = None
    points: list[tuple[int, str]] = field(default_factory=list)  # judged so far: sessions, verdict
    history: ViewHistory = field(default_factory=ViewHistory)
    collapse: str = ""  # the first one of the phase
    busy: str = ""  # what other programs take of the machine; "" if it is little
    paused: bool = False
    help: bool = False
    watched: str = ""  # the last line of a watched server


def dashboard(view: DashboardState, width: int, glyphs: Glyphs, height: int | None = None) -> Text:
    """The whole view as one text of lines at most `width` cells wide.

    With a `height` in lines, rows that matter less are left out until the rest fits, and panels fill the rest.
    """
    page = _rows(view, width, glyphs)
    panels = panels_of(view.history, view.snapshot, glyphs)
    if height is None or height < LEAST_FOR_PANELS or not panels:
        return page.text(height)
    head = page.text(min(page.lines, max(LEAST_ROWS, int(height * ROWS_SHARE))))
    used = len(head.plain.split("\n"))
    area = [Text(KEYS_HELP[:width])] if view.help else []
    area += arrange(panels, width, height - used - 1 - len(area), glyphs)
    state = "paused   " if view.paused else ""
    footer = Text(f"{state}q stop   p {'continue' if view.paused else 'pause'}   ? help"[:width], "dim")
    return Text("\n", no_wrap=True).join([head, *area, footer])


def _rows(view: DashboardState, width: int, glyphs: Glyphs) -> DashboardLayout:
    page = DashboardLayout(max(20, width), glyphs)
    snap = view.snapshot
    page.row(9, "", _headline(view), style="bold")
    if view.collapse:
        page.row(9, "", [Text(printable(view.collapse))], style="bold white on red")
    if view.busy:
        page.row(8, "", [Text(view.busy)], style="bold yellow")
    if snap is None:
        page.row(8, "elapsed", [Text(format_seconds(view.elapsed_s))])
        if view.watched:
            page.prose(9, "server", printable(view.watched))
        return page
    if conditions := _conditions(snap):
        page.row(5, "", conditions, style="yellow")
    _progress(page, snap, view.elapsed_s)
    if snap.has_sessions:
        _sessions(page, snap)
        _latency(page, snap)
        _frames(page, snap)
    if snap.heard is not None:
        _heard(page, snap.heard)
    _pool(page, snap)
    _stages(page, snap)
    _points(page, view.points)
    if snap.verdict:
        page.prose(6, "so far", printable(snap.verdict))
    return page


class DashboardLayout:
    """Rows that grow downwards, each with how much it matters (9 most)."""

    def __init__(self, width: int, glyphs: Glyphs) -> None:
        self.width = width
        self.glyphs = glyphs
        self._rows: list[tuple[int, list[Text]]] = []

    @property
    def room(self) -> int:
        """Cells beside the label."""
        return self.width - LABEL

    def row(self, matters: int, label: str, cells: Sequence[Text], style: str = "") -> None:
        """A label and its cells, wrapped between cells; a cell too wide for a line of its own is cut."""
        indent = LABEL if label else 0
        lines, empty = [_label(label, indent)], True
        for cell in cells:
            piece = cell.copy()
            piece.truncate(self.width - indent)
            if not empty and lines[-1].cell_len + GAP + piece.cell_len > self.width:
                lines.append(_label("", indent))
                empty = True
            lines[-1].append(" " * (0 if empty else GAP))
            lines[-1].append_text(_styled(piece, style))
            empty = False
        self._rows.append((matters, lines))

    def prose(self, matters: int, label: str, words: str) -> None:
        """A label and a sentence, wrapped between words."""
        lines = textwrap.wrap(words, self.room)
        self._rows.append(
            (
                matters,
                [_label("" if index else label, LABEL).append(line) for index, line in enumerate(lines)],
            )
        )

    @property
    def lines(self) -> int:
        """Lines of all rows."""
        return sum(len(lines) for _, lines in self._rows)

    def text(self, height: int | None = None) -> Text:
        """All rows, or those that matter most within `height` lines."""
        rows = list(self._rows)
        while height is not None and len(rows) > 1 and sum(len(lines) for _, lines in rows) > height:
            rows.remove(min(rows, key=lambda row: row[0]))
        return Text("\n", no_wrap=True).join([line for _, lines in rows for line in lines])


def _label(label: str, width: int) -> Text:
    return Text().append(label.ljust(width), "dim")


def _styled(text: Text, style: str) -> Text:
    if style:
        text.stylize(style)
    return text


def _headline(view: DashboardState) -> list[Text]:
    phase = printable(view.phase)
    detail = printable(view.detail)
    words = [f"{phase}: {detail}" if detail else phase]
    snap = view.snapshot
    if snap is not None and snap.done and (snap.phase, snap.detail) == (view.phase, view.detail):
        words.append(printable(snap.done))
    return [Text(printable(view.title)), Text(", ".join(words))]


def _conditions(snap: Snapshot) -> list[Text]:
    cells = [Text("random weights")] if snap.random_weights else []
    if not snap.has_sessions:
        return cells
    return [*cells, Text(f"{snap.clock} clock, at {format_seconds(snap.run_s)}")]


def _progress(page: DashboardLayout, snap: Snapshot, elapsed_s: float) -> None:
    cells = []
    if snap.progress is not None:
        cells.append(Text(bar(snap.progress, min(30, page.room - 6), page.glyphs), style="cyan"))
    if snap.progress is not None and snap.budget_s is None:
        cells.append(Text(percent(snap.progress)))
        cells.append(Text(f"{format_seconds(elapsed_s)} elapsed"))
        cells += [Text(f"about {format_seconds(snap.eta_s)} left")] if snap.eta_s is not None else []
    else:
        cells.append(Text(time_line(None, None, max(elapsed_s, snap.elapsed_s), snap.budget_s)))
    page.row(7, "progress", cells)


def _sessions(page: DashboardLayout, snap: Snapshot) -> None:
    offered = [
        Text(f"{snap.offered:,} offered"),
        Text(f"{snap.admitted:,} admitted"),
        Text(f"{snap.shed:,} shed"),
    ]
    moving = []
    if snap.occupancy is not None:  # else it is not known which of them run
        waiting = Text(f"{snap.waiting:,} waiting", style="bold red" if snap.waiting else "")
        moving = [Text(f"{snap.running:,} running"), waiting]
    cells = offered if snap.told_by_server else [*moving, *offered]
    if snap.cap is not None:
        cells.append(Text(f"cap {format_limit(snap.cap)}", style="cyan"))
    page.row(6, "sessions", cells)
    if snap.told_by_server and moving:
        page.row(5, "server", moving)


def _latency(page: DashboardLayout, snap: Snapshot) -> None:
    late = snap.p99_ms is not None and snap.p99_ms > snap.deadline_ms
    cells = [
        Text(f"p50 {format_ms(snap.p50_ms)}"),
        Text(f"p99 {format_ms(snap.p99_ms)}", style="bold red" if late else "bold"),
        Text(f"max {format_ms(snap.max_ms)}"),
        Text(f"ms of {format_measured(snap.deadline_ms, 'ms')}"),
    ]
    page.row(8, "latency", cells)
    if snap.recent:
        recent = list(snap.recent)[-page.room :]
        page.row(4, "steps", [_strip(recent, snap.deadline_ms, page.glyphs)])
        if any(kind != "ok" for _, kind in recent):
            page.row(1, "", [Text(" " * LABEL).append_text(_marks(recent))])


def _strip(recent: Sequence[tuple[float, BatchKind]], deadline_ms: float, glyphs: Glyphs) -> Text:
    """One character a step, its height the latency against the deadline, its colour the kind."""
    text = Text()
    for latency_ms, kind in recent:
        text.append(level(latency_ms, deadline_ms, glyphs), KIND_STYLES[kind])
    return text


def _marks(recent: Sequence[tuple[float, BatchKind]]) -> Text:
    text = Text()
    for _, kind in recent:
        text.append(KIND_MARKS[kind], KIND_STYLES[kind])
    return text


def _frames(page: DashboardLayout, snap: Snapshot) -> None:
    empty = Text(f"{snap.empty_frames:,} empty", style=KIND_STYLES["empty"] if snap.empty_frames else "")
    cells = [
        Text(plural(snap.frames, "frame")),
        Text(plural(snap.steps, "step")),
        Text(plural(snap.misses, "miss"), style=KIND_STYLES["late"] if snap.misses else ""),
        empty,
    ]
    page.row(5, "answered", cells)


def _heard(page: DashboardLayout, heard: HeardNow) -> None:
    """What listeners hear, the turns of the users, and the caches of single calls."""
    if heard.longest_gap_ms is not None:
        starved = Text(
            f"starved {percent(heard.starved_share)}", style="bold red" if heard.starved_share else ""
        )
        delay = f"delay needed {format_ms(heard.need_p50_ms)} ms, at most {format_ms(heard.need_max_ms)}"
        page.row(
            5, "heard", [Text(f"longest gap {format_ms(heard.longest_gap_ms)} ms"), starved, Text(delay)]
        )
    if heard.asked:
        reply = f"reply p50 {format_ms(heard.reply_p50_ms)} ms, p95 {format_ms(heard.reply_p95_ms)}"
        missing = "bold red" if heard.answered < heard.asked else ""
        cells = [
            Text(f"{heard.asked:,} asked"), Text(f"{heard.answered:,} answered", style=missing), Text(reply),
            Text(f"{heard.talked_over:,} talked over"),
        ]  # fmt: skip
        if heard.yield_p95_ms is not None:
            cells.append(Text(f"stops in {format_ms(heard.yield_p95_ms)} ms"))
        page.row(5, "turns", cells)
    if heard.listens_share is not None:
        page.row(3, "units", [Text(f"listens {percent(heard.listens_share)}")])
    if heard.cache is not None:
        of = "" if heard.cache_limit is None else f" of {heard.cache_limit:,}"
        full = [] if heard.full_in_s is None else [Text(f"full in {format_seconds(heard.full_in_s)}")]
        page.row(4, "context", [Text(f"{heard.cache:,}{of} in the oldest call"), *full])


def _pool(page: DashboardLayout, snap: Snapshot) -> None:
    if snap.occupancy is None:
        return
    style = "bold red" if snap.occupancy >= 0.995 else "yellow" if snap.occupancy > 0.8 else "green"
    meter = Text(bar(snap.occupancy, min(30, page.room - 6), page.glyphs), style=style)
    page.row(6, "KV pool", [meter, Text(percent(snap.occupancy))])


def _stages(page: DashboardLayout, snap: Snapshot) -> None:
    total = sum(snap.stages_ms.values())
    if total <= 0:
        return
    width, strip, cells = min(30, page.room), Text(), []
    drawn, seen = 0, 0.0
    for index, (name, value) in enumerate(snap.stages_ms.items()):
        seen += value
        shade = page.glyphs.shades[index % len(page.glyphs.shades)]
        style = STAGE_STYLES[index % len(STAGE_STYLES)]
        upto = round(seen / total * width)
        strip.append(shade * (upto - drawn), style)
        drawn = upto
        cells.append(Text.assemble((shade, style), f" {printable(name)} {format_ms(value)}"))
    page.row(2, "step", [strip, *cells, Text("ms")])


def _points(page: DashboardLayout, points: Sequence[tuple[int, str]]) -> None:
    if not points:
        return
    styles = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
    words = {"pass": "held", "fail": "failed", "inconclusive": "open"}
    cells = [Text(f"{count:,} {words.get(v, v)}", style=styles.get(v, "")) for count, v in points[-6:]]
    page.row(3, "judged", cells)
