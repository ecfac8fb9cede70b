"""Sees a silent collapse: frames on time, and nothing in them.

A collapse is declared when, for `patience_s` of the run's clock, every frame that owed an answer came back empty.
Its instant is that of the last frame that carried output. Neither lateness nor the counts of running and waiting
sessions take part: a stalled engine misses no deadline.
"""

from __future__ import annotations

from metronome_cli.measure.ledger import Ledger


def silence_timeout_s(period_s: float) -> float:
    """How long nothing but empty frames may come before it is a silence: 2 s, and 10 periods at the least."""
    return max(2.0, 10 * period_s)


class SilenceDetector:
    """Looks at a ledger now and then."""

    def __init__(self, ledger: Ledger, patience_s: float) -> None:
        self._ledger = ledger
        self._patience_s = patience_s
        self._silent_since_s: float | None = None
        self._seen = (0, 0)

    def collapsed(self, now_s: float) -> bool:
        """Whether nothing but empty frames has come for the whole patience."""
        total = self._ledger.total
        frames, empty = total.frames - self._seen[0], total.empty_frames - self._seen[1]
        self._seen = (total.frames, total.empty_frames)
        if frames and empty == 0:
            self._silent_since_s = None
        last = self._ledger.last_output_s or 0.0
        if empty and (self._silent_since_s is None or last > self._silent_since_s):
            self._silent_since_s = last
        return self._silent_since_s is not None and now_s - self._silent_since_s >= self._patience_s
