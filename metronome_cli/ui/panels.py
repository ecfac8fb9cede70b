"""The panels of the live view: each has a title and draws itself into the cells that it is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text

from metronome_cli.core.formatting import format_ms, percent, plural
from metronome_cli.results.events import SessionView, Snapshot
from metronome_cli.ui.charts import bars, curve, grid
from metronome_cli.ui.glyphs import Glyphs, printable
from metronome_cli.ui.history import FULL, Sample, ViewHistory, clock_text

GAP = 2
LEAST_HEIGHT = 5  # lines of a panel, its title among them
STEADY_S = 36_000  # a pool that fills later than this is called steady
VERDICT_STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
VIEW_STYLES: dict[SessionView, str] = {
    "on time": "green", "late": "bold red", "empty": "bold magenta", "waiting": "yellow",
}  # fmt: skip
Draw = Callable[[int, int], list[Text]]


@dataclass(frozen=True, slots=True)
class Panel:
    """`draw(width, height)` returns at most `height` lines."""

    title: str
    draw: Draw
    style: str = "bold"


def panels_of(history: ViewHistory, snap: Snapshot | None, glyphs: Glyphs) -> list[Panel]:
    """The panels that have data, the most useful first."""
    found = [
        _pool(history, glyphs),
        _latency(history, snap, glyphs),
        _search(history, snap, glyphs),
        _sessions(snap, glyphs),
        _histogram(history, snap, glyphs),
        _surface(history, glyphs),
        _events(history),
    ]
    return [panel for panel in found if panel is not None]


def arrange(panels: Sequence[Panel], width: int, height: int, glyphs: Glyphs) -> list[Text]:
    """Rows of panels that fill `height` lines; those that do not fit are left out."""
    columns = 3 if width >= 150 else 2 if width >= 56 else 1
    rows = max(1, min(height // LEAST_HEIGHT, -(-len(panels) // columns)))
    shown = list(panels[: rows * columns])
    lines: list[Text] = []
    for row in range(rows):
        here = shown[row * columns : (row + 1) * columns]
        if not here:
            break
        tall = height // rows + (row < height % rows)
        wide = (width - GAP * (len(here) - 1)) // len(here)
        blocks = [_block(panel, wide, tall, glyphs) for panel in here]
        for each in zip(*blocks, strict=True):
            lines.append(Text(" " * GAP).join(each))
    return lines


def _block(panel: Panel, width: int, height: int, glyphs: Glyphs) -> list[Text]:
    title = Text(panel.title, panel.style)
    title.truncate(width)
    title.append(
        f" {glyphs.line * max(0, width - title.cell_len - 1)}" if title.cell_len < width else "", "dim"
    )
    body = panel.draw(width, height - 1)[: height - 1]
    lines = [title, *body, *[Text() for _ in range(height - 1 - len(body))]]
    for line in lines:
        line.truncate(width, pad=True)
    return lines


def _pool(history: ViewHistory, glyphs: Glyphs) -> Panel | None:
    samples = [sample for sample in history.samples if sample.occupancy is not None]
    if not samples:
        return None
    now = samples[-1].occupancy or 0.0
    left_s = history.full_in_s()
    words = "full" if now >= FULL else "steady" if left_s is None or left_s > STEADY_S else ""
    title = f"KV pool {percent(now)}, {words or 'full in ' + clock_text(left_s or 0)}"
    ahead = _projection(samples, left_s) if not words and left_s is not None else []

    def draw(width: int, height: int) -> list[Text]:
        return curve(
            [sample.occupancy for sample in samples], (width, height), 1.0, glyphs,
            ahead=ahead, style=_pool_style, label=lambda value: f"{100 * value:.0f}%",
        )  # fmt: skip

    return Panel(title, draw, "bold red" if now >= FULL else "bold")


def _pool_style(occupancy: float) -> str:
    return "red" if occupancy >= FULL else "yellow" if occupancy > 0.8 else "green"


def _projection(samples: Sequence[Sample], left_s: float) -> list[float]:
    """Occupancies up to full, spaced as the samples are; at most three times as many."""
    span_s = max(1e-9, samples[-1].t_s - samples[0].t_s)
    count = max(1, min(3 * len(samples), round(len(samples) * left_s / span_s)))
    reached = min(1.0, span_s * count / len(samples) / left_s) if left_s > 0 else 1.0
    now = samples[-1].occupancy or 0.0
    return [now + (1 - now) * reached * (step + 1) / count for step in range(count)]


def _latency(history: ViewHistory, snap: Snapshot | None, glyphs: Glyphs) -> Panel | None:
    values = [sample.p99_ms for sample in history.samples]
    known = [value for value in values if value is not None]
    if snap is None or not known:
        return None
    deadline = snap.deadline_ms
    top = max(1.2 * deadline, min(max(known), 4 * deadline))

    def draw(width: int, height: int) -> list[Text]:
        return curve(
            values, (width, height), top, glyphs, limit=deadline,
            style=lambda value: "red" if value > deadline else "green", label=format_ms,
        )  # fmt: skip

    late = known[-1] > deadline
    title = f"p99 {format_ms(known[-1])} ms, deadline {format_ms(deadline)} ms"
    return Panel(title, draw, "bold red" if late else "bold")


def _search(history: ViewHistory, snap: Snapshot | None, glyphs: Glyphs) -> Panel | None:
    if not history.trials:
        return None
    last = {int(trial.get("sessions", 0)): trial for trial in history.trials}

    def draw(width: int, height: int) -> list[Text]:
        tried = sorted(last, reverse=True)
        if len(tried) > height:  # the edge between pass and fail is what matters
            passed = [count for count in tried if last[count].get("verdict") == "pass"]
            edge = tried.index(passed[0]) if passed else len(tried) - 1
            first = max(0, min(edge - height // 2, len(tried) - height))
            tried = tried[first : first + height]
        digits = max(len(f"{count:,}") for count in tried)
        return [_rung(count, last[count], digits) for count in tried]

    return Panel(f"search, {plural(len(last), 'number')} of sessions tried", draw)


def _rung(count: int, trial: dict[str, object], digits: int) -> Text:
    verdict = str(trial.get("verdict", ""))
    said = printable(" ".join(str(trial.get(key) or "") for key in ("role", "purpose", "reason")).strip())
    return (
        Text(f"{count:,}".rjust(digits) + " ")
        .append(f"{verdict:<13}", VERDICT_STYLES.get(verdict, ""))
        .append(" ".join(said.split()), "dim")
    )


def _sessions(snap: Snapshot | None, glyphs: Glyphs) -> Panel | None:
    if snap is None or not snap.session_views:
        return None
    counted = Counter(snap.session_views)
    marks = dict(zip(VIEW_STYLES, glyphs.cells, strict=True))
    title = "sessions: " + ", ".join(
        f"{counted[view]:,} {view} {marks[view]}" for view in VIEW_STYLES if counted[view]
    )
    cells = [(marks[view], VIEW_STYLES[view]) for view in snap.session_views]
    return Panel(title, lambda width, height: grid(cells, (width, height)))


def _histogram(history: ViewHistory, snap: Snapshot | None, glyphs: Glyphs) -> Panel | None:
    if snap is None or not any(history.counts):
        return None
    deadline = snap.deadline_ms

    def draw(width: int, height: int) -> list[Text]:
        return bars(_buckets(history, deadline, height), width, glyphs)

    return Panel(f"latency of {sum(history.counts):,} frames, ms", draw)


def _buckets(history: ViewHistory, deadline: float, most: int) -> list[tuple[str, float, str]]:
    """Buckets between the first and the last that hold frames, neighbours merged until they fit."""
    edges = [*history.bounds_ms, float("inf")]
    held = [(edge, count) for edge, count in zip(edges, history.counts, strict=True)]
    filled = [index for index, (_, count) in enumerate(held) if count]
    held = held[filled[0] : filled[-1] + 1]
    while len(held) > max(1, most):
        pairs = [index for index in range(len(held) - 1) if held[index][0] != deadline] or [0]
        index = min(pairs, key=lambda i: held[i][1] + held[i + 1][1])
        held[index : index + 2] = [(held[index + 1][0], held[index][1] + held[index + 1][1])]
    last = history.bounds_ms[-1]
    return [
        (
            f"> {format_ms(last)}" if edge == float("inf") else f"<= {format_ms(edge)}",
            float(count),
            "red" if edge > deadline else "green",
        )
        for edge, count in held
    ]


def _surface(history: ViewHistory, glyphs: Glyphs) -> Panel | None:
    """Median step time of each cell measured so far: a row per number of sessions, a column per age."""
    if not history.probed:
        return None
    policy = history.probed[-1]["policy"]
    cells = {(c["sessions"], c["age_s"]): c["median_ms"] for c in history.probed if c["policy"] == policy}
    ages = sorted({age for _, age in cells})
    counts = sorted({count for count, _ in cells})

    def draw(width: int, height: int) -> list[Text]:
        head = "sessions".rjust(9) + "".join(clock_text(age).rjust(9) for age in ages)
        lines = [Text(head, "dim")]
        for count in counts:
            figures = (format_ms(cells.get((count, age))).rjust(9) for age in ages)
            lines.append(Text(f"{count:,}".rjust(9) + "".join(figures)))
        return lines[:height]

    return Panel(f"step time, ms, by age: {printable(str(policy))}", draw)


def _events(history: ViewHistory) -> Panel | None:
    if not history.events:
        return None

    def draw(width: int, height: int) -> list[Text]:
        shown = history.events[-height:]
        return [
            Text(f"{clock_text(at):>7} ", "dim").append(printable(text), style) for at, text, style in shown
        ]

    return Panel("events", draw)
