"""Makes a long timeline short without losing what it is looked at for: peaks stay peaks, counts stay sums.

A merged window has the highest p99, maximum and occupancy of those that it stands for, the median of their medians,
the sums of their counts, and the last one's time and sessions. A warm-up that is merged with windows that count adds
its occupancy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from metronome_cli.results.measured import Window

MOST_WINDOWS = 1000


def downsample(windows: Sequence[Window], most: int) -> list[Window]:
    """At most `most` windows, each of a run of equally many: highest latency and occupancy, summed counts."""
    if len(windows) <= most:
        return list(windows)
    stride = -(-len(windows) // most)
    return [_merged(windows[start : start + stride]) for start in range(0, len(windows), stride)]


class WindowTimeline:
    """Windows as they come, in bounded room: beyond `most`, each entry stands for twice as many as before.

    So an hour and a month look alike, evenly spaced. `each`: windows that one entry stands for; the last entry may
    stand for fewer.
    """

    def __init__(self, most: int = MOST_WINDOWS) -> None:
        self.each = 1
        self._most = max(2, most + most % 2)
        self._whole: list[Window] = []
        self._open: list[Window] = []  # fewer than `each`

    def add(self, window: Window) -> None:
        """One more, later than all before."""
        self._open.append(window)
        if len(self._open) < self.each:
            return
        self._whole.append(_merged(self._open))
        self._open = []
        if len(self._whole) == self._most:
            self._whole = [_merged(self._whole[at : at + 2]) for at in range(0, self._most, 2)]
            self.each *= 2

    @property
    def windows(self) -> list[Window]:
        """The entries so far, in order."""
        return self._whole + ([_merged(self._open)] if self._open else [])


def _merged(windows: Sequence[Window]) -> Window:
    last = windows[-1]
    counted = [w for w in windows if w.warm_up == last.warm_up]
    return last.model_copy(
        update={
            "p50_ms": _of(median, [w.p50_ms for w in counted]),
            "p99_ms": _of(max, [w.p99_ms for w in counted]),
            "max_ms": _of(max, [w.max_ms for w in counted]),
            "occupancy": _of(max, [w.occupancy for w in windows]),
            "stage_occupancy": {
                stage: max(w.stage_occupancy.get(stage, 0.0) for w in windows)
                for stage in last.stage_occupancy
            },
            "waiting": max(w.waiting for w in windows),
            "frames": sum(w.frames for w in counted),
            "misses": sum(w.misses for w in counted),
            "empty_frames": sum(w.empty_frames for w in counted),
        }
    )


def _of(pick: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return pick(known) if known else None
