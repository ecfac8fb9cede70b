"""Evidence of `underrun`: one listener in one period, starved if it lacked sound for more than 20 ms of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from metronome_cli.measure.block_share import BlockShare, block_length_s
from metronome_cli.measure.playback import CONCEALED_S

_ROUNDING_S = 1e-9


@dataclass(slots=True)
class _Period:
    listeners: int = 0
    starved: int = 0


class StarvedPeriods:
    """Listeners and starved listeners by period, at one playback delay. Listeners of one period form a cluster."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.share = BlockShare(block_length_s(period_s))
        self._periods: dict[int, _Period] = {}
        self._first = -1

    def restart(self, now_s: float) -> None:
        """Begin to count anew with the period of `now_s`."""
        self.share = BlockShare(block_length_s(self.period_s))
        self._periods.clear()
        self._first = math.floor(now_s / self.period_s)

    def call(self) -> CallPeriods:
        """What takes the intervals of one call."""
        return CallPeriods(self)

    def listened(self, period: int) -> None:
        if period >= self._first:
            self._periods.setdefault(period, _Period()).listeners += 1

    def starved(self, period: int) -> None:
        if period >= self._first:
            self._periods.setdefault(period, _Period()).starved += 1

    def close_before(self, now_s: float) -> None:
        """Count every period that has ended."""
        last = math.floor(now_s / self.period_s) if math.isfinite(now_s) else None
        for period in sorted(self._periods):
            if last is not None and period >= last:
                break
            counts = self._periods.pop(period)
            self.share.add(period * self.period_s, min(counts.starved, counts.listeners), counts.listeners)


@dataclass(slots=True)
class CallPeriods:
    """The periods of one call; each counts once, however its intervals are cut."""

    all_calls: StarvedPeriods
    _listened_to: int = -1
    _starved_in: dict[int, float] = field(default_factory=dict)  # by period, seconds

    def listened(self, from_s: float, to_s: float) -> None:
        """An interval in which sound was played or owed."""
        first, last = max(self._listened_to + 1, self._period(from_s)), self._period(to_s - _ROUNDING_S)
        for period in range(first, last + 1):
            self.all_calls.listened(period)
        self._listened_to = max(self._listened_to, last)

    def starved(self, from_s: float, to_s: float) -> None:
        """An interval in which sound was owed and none was there."""
        period_s = self.all_calls.period_s
        for period in range(self._period(from_s), self._period(to_s - _ROUNDING_S) + 1):
            part_s = min(to_s, (period + 1) * period_s) - max(from_s, period * period_s)
            before_s = self._starved_in.get(period, 0.0)
            self._starved_in[period] = before_s + part_s
            if before_s <= CONCEALED_S < before_s + part_s:
                self.all_calls.starved(period)
        for period in [old for old in self._starved_in if old < self._period(to_s)]:
            del self._starved_in[period]

    def _period(self, at_s: float) -> int:
        return math.floor(at_s / self.all_calls.period_s)
