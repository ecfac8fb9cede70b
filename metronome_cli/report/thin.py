"""Makes a long timeline short without losing what it is looked at for: peaks stay peaks, counts stay sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from metronome_cli.report.model import TimelinePoint


def thin(windows: Sequence[TimelinePoint], most: int) -> list[TimelinePoint]:
    """At most `most` windows, each of a run of equally many: highest latency and occupancy, summed counts."""
    if len(windows) <= most:
        return list(windows)
    stride = -(-len(windows) // most)
    return [_merged(windows[start : start + stride]) for start in range(0, len(windows), stride)]


def _merged(windows: Sequence[TimelinePoint]) -> TimelinePoint:
    last = windows[-1]
    return last.model_copy(
        update={
            "p50_ms": _of(median, [w.p50_ms for w in windows]),
            "p99_ms": _of(max, [w.p99_ms for w in windows]),
            "max_ms": _of(max, [w.max_ms for w in windows]),
            "occupancy": _of(max, [w.occupancy for w in windows]),
            "waiting": max(w.waiting for w in windows),
            "frames": sum(w.frames for w in windows),
            "misses": sum(w.misses for w in windows),
            "empty_frames": sum(w.empty_frames for w in windows),
        }
    )


def _of(pick: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return pick(known) if known else None
