"""Recorded occupancy from files: our report.json and events.jsonl, or any CSV, JSON or JSON lines of (time, occupancy).

In a foreign file the columns are found by name (`TIME`, `OCCUPANCY`) or named by the user. Times are
seconds, unless the name ends in `_ms`, or ISO 8601 stamps; the first one is 0. Occupancy is a share,
0..1, unless the name says percent. A file of ours may hold several runs: commands/predict/report_trials.py
says which one counts.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from metronome_cli.commands.predict.report_trials import choose, runs_in
from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import read_bounded
from metronome_cli.core.strict_json import BadJson, loads
from metronome_cli.forecast.occupancy_trace import OccupancyTrace, clean_trace
from metronome_cli.report.event_log import EVENTS_SCHEMA
from metronome_cli.report.rebuild import rebuild
from metronome_cli.report.report_file import load_report
from metronome_cli.results.run_report import SCHEMA, Report

TIME = ("t_s", "t", "time_s", "time", "seconds", "elapsed", "elapsed_s", "t_ms", "time_ms", "timestamp", "ts")
OCCUPANCY = (
    "occupancy", "rho", "kv_cache_usage", "kv_cache_usage_perc", "vllm:kv_cache_usage_perc", "gpu_cache_usage_perc",
    "token_usage", "usage", "used", "occupancy_percent", "occupancy_pct",
)  # fmt: skip
_EPOCH_S = 1e8  # beyond it, seconds are counted from 1970
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedOccupancy:
    """One run's occupancy. `offered`, `served`: frames, by sample; empty where they were not recorded. `others`: names
    of the runs beside it.
    """

    name: str
    trace: OccupancyTrace
    t_s: Sequence[float] = ()
    offered: Sequence[float] = ()
    served: Sequence[float] = ()
    others: tuple[str, ...] = ()

    def served_share(self, until_s: float) -> float | None:
        """Frames served of those offered, up to that instant; None if they were not counted."""
        rows = [i for i, t in enumerate(self.t_s) if t <= until_s]
        offered = sum(self.offered[i] for i in rows)
        return min(1.0, sum(self.served[i] for i in rows) / offered) if offered > 0 else None


def read_recording(
    path: Path, *, run: str | None = None, time: str | None = None, occupancy: str | None = None
) -> RecordedOccupancy:
    """Read one run. Raises UsageError naming file, row and what is allowed."""
    file = _file(path)
    data = read_bounded(file)
    if file.suffix in (".csv", ".tsv", ".txt"):
        _of_one_run(file, run)
        return _foreign(_csv_rows(data, file), file, time, occupancy)
    value = _json_value(data, file)
    if isinstance(value, dict) and value.get("schema") == SCHEMA:
        return _chosen(load_report(file), run, file)
    if isinstance(value, list) and value and _names_events(value[0]):
        return _chosen(rebuild(file), run, file)
    _of_one_run(file, run)
    if isinstance(value, dict):
        value = next((rows for rows in value.values() if isinstance(rows, list) and rows), [])
    return _foreign(
        [_as_row(row, number, file) for number, row in enumerate(value, 1)], file, time, occupancy
    )


def _file(path: Path) -> Path:
    """The file itself, or what a run's directory holds."""
    if not path.is_dir():
        return path
    for name in ("report.json", "events.jsonl"):
        if (path / name).is_file():
            return path / name
    raise UsageError(
        f"{path}: neither report.json nor events.jsonl is there", hint="give a file or a run's directory"
    )


# -- our own files ---------------------------------------------------------------------------------


def _chosen(report: Report, wanted: str | None, file: Path) -> RecordedOccupancy:
    run, others = choose(runs_in(report), wanted, file)
    windows, period_s = run.timeline, run.period_s
    trace = run.trace(file)
    steps = np.diff([0.0, *(w.t_s for w in windows)])
    offered = [w.sessions * step / period_s for w, step in zip(windows, steps, strict=True)]
    offered[:1] = [0.0]  # the first window began somewhere after a warm-up: it is not counted
    known = not math.isnan(period_s)
    return RecordedOccupancy(
        run.name,
        trace,
        [w.t_s for w in windows],
        offered if known else [],
        [w.frames - w.empty_frames if row else 0 for row, w in enumerate(windows)] if known else [],
        tuple(others),
    )


# -- anything else ---------------------------------------------------------------------------------


def _of_one_run(file: Path, wanted: str | None) -> None:
    if wanted is not None:
        raise UsageError(
            f"--trial {wanted!r}: {file} holds one run, without a name", hint="leave --trial out"
        )


def _foreign(rows: Sequence[Row], file: Path, time: str | None, occupancy: str | None) -> RecordedOccupancy:
    if not rows:
        raise UsageError(
            f"{file}: no samples in it", hint="write one row per sample, with its time and occupancy"
        )
    time_key = _column(rows[0], time, TIME, file, "time")
    level_key = _column(rows[0], occupancy, OCCUPANCY, file, "occupancy")
    scale = 1e-3 if time_key.endswith("_ms") else 1.0
    share = 1e-2 if any(word in level_key.lower() for word in ("percent", "pct", "%")) else 1.0
    times = [_seconds(row.get(time_key), number, file, scale) for number, row in enumerate(rows, 1)]
    levels = [_level(row.get(level_key), share) for row in rows]
    first = next((t for t in times if t is not None), 0.0)
    first = first if first >= _EPOCH_S else 0.0
    samples = [(None if t is None else t - first, v) for t, v in zip(times, levels, strict=True)]
    return RecordedOccupancy(f"{time_key}, {level_key}", clean_trace(samples, str(file)))


def _column(row: Row, given: str | None, known: Iterable[str], file: Path, what: str) -> str:
    by_name = {str(key).strip().lower(): str(key) for key in row}
    wanted = [given.strip().lower()] if given else list(known)
    for name in wanted:
        if name in by_name:
            return by_name[name]
    raise UsageError(
        f"{file}: no column {given!r}" if given else f"{file}: no column of {what} found",
        hint=f"name it with --{what}-column; columns: {', '.join(map(str, row))}",
    )


def _csv_rows(data: bytes, file: Path) -> list[Row]:
    text = data.decode("utf-8-sig", "replace")
    delimiter = max("\t;,", key=text.partition("\n")[0].count)
    try:
        reader = list(csv.reader(io.StringIO(text, newline=None), delimiter=delimiter))
    except csv.Error as error:
        raise UsageError(f"{file}: not a table: {error}") from None
    rows = [
        row for row in reader if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")
    ]
    if not rows:
        return []
    header = [cell.strip() for cell in rows[0]]
    if all(_number(cell) is not None for cell in header):  # no header: time, occupancy
        header, body = ["t_s", "occupancy", *map(str, range(2, len(header)))], rows
    else:
        body = rows[1:]
    return [dict(zip(header, row, strict=False)) for row in body]


def _json_value(data: bytes, file: Path) -> Any:
    """One JSON value, or a list of the lines' values; a last line that was cut off is left out."""
    try:
        return loads(data)
    except BadJson as whole:
        lines = [line for line in data.splitlines() if line.strip()]
        values = []
        for number, line in enumerate(lines, 1):
            try:
                values.append(loads(line))
            except BadJson as error:
                if number == len(lines) and number > 1:
                    break
                raise UsageError(f"{file}: {whole if number == 1 else f'line {number}: {error}'}") from None
        return values


def _as_row(row: Any, number: int, file: Path) -> Row:
    if isinstance(row, dict):
        return row
    if isinstance(row, list) and len(row) >= 2:
        return {"t_s": row[0], "occupancy": row[1]}
    raise UsageError(
        f"{file}: sample {number} is neither an object nor a pair", hint="[time, occupancy] or an object"
    )


def _seconds(value: Any, number: int, file: Path, scale: float) -> float | None:
    numeric = _number(value)
    if numeric is not None:
        return numeric * scale
    if value is None or not str(value).strip():
        return None
    try:
        return datetime.fromisoformat(str(value).strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{file}: sample {number}: {str(value)[:40]!r} is no time", hint="seconds, or an ISO 8601 stamp"
        ) from None


def _level(value: Any, share: float) -> float | None:
    if isinstance(value, str) and value.strip().endswith("%"):
        value, share = value.strip()[:-1], 1e-2
    numeric = _number(value)
    return None if numeric is None else numeric * share


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _names_events(value: Any) -> bool:
    return isinstance(value, dict) and value.get("schema") == EVENTS_SCHEMA
