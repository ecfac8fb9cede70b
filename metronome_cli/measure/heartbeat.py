"""Unit answers: a full-duplex model owes one answer per unit of input, be it sound, text or "listening".

Latency of a unit: arrival of its answer minus its due time. Answers without an id answer first in, first out, and none
answers a unit that is not due yet. A unit without an answer within the time to give up is empty. Where no document
promises answers they are owed if an idle call had at least 0.9 per unit while its user was silent; never learned under
load. Known error: a server that drops input without a message appears one unit late from then on, so latencies are
"at most" if `dropped` is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

OWED_SHARE = 0.9  # answers per unit in an idle call from which on they are owed
STILL_BEATS = 3  # answers with an unchanged cache length, of a cache that grows: only the front answers

Owed = Literal["promised", "learned", "none"]


def owed(promised: bool, idle_per_unit: float | None) -> Owed:
    """Whether each unit is owed an answer; `idle_per_unit` None if no idle call was made."""
    if promised:
        return "promised"
    return "learned" if idle_per_unit is not None and idle_per_unit >= OWED_SHARE else "none"


def match_beats(due_s: Sequence[float], beats_s: Sequence[float]) -> list[float | None]:
    """Latency in seconds of each unit, first in, first out; None for a unit without an answer."""
    latencies: list[float | None] = []
    beats = iter(sorted(beats_s))
    beat = next(beats, None)
    for due in due_s:
        if beat is not None and beat >= due:
            latencies.append(beat - due)
            beat = next(beats, None)
        else:
            latencies.append(None)
    return latencies


@dataclass(slots=True)
class CacheLength:
    """Length of one session's KV cache as its server reports it, and when it reaches the limit."""

    limit: int | None = None
    last: int | None = None
    still: int = 0  # reports in a row with the same length
    _n: int = 0
    _t0: float = 0.0
    _sums: list[float] = field(default_factory=lambda: [0.0] * 4)  # of t, k, t*t, t*k

    def report(self, t_s: float, length: int) -> None:
        """Take a report at `t_s`. A shorter length is a new cache, and the fit starts again."""
        if self.last is not None and length < self.last:
            self._n, self._sums, self.still = 0, [0.0] * 4, 0
        self.still = self.still + 1 if length == self.last else 0
        if not self._n:
            self._t0 = t_s
        t = t_s - self._t0
        self._n += 1
        self._sums = [a + b for a, b in zip(self._sums, (t, length, t * t, t * length), strict=True)]
        self.last = length

    @property
    def growth_per_s(self) -> float | None:
        """Least-squares slope in positions per second; None below 2 reports."""
        sum_t, sum_k, sum_tt, sum_tk = self._sums
        spread = sum_tt - sum_t * sum_t / self._n if self._n > 1 else 0.0
        return (sum_tk - sum_t * sum_k / self._n) / spread if spread > 0 else None

    @property
    def full_in_s(self) -> float | None:
        """Seconds from the last report until the limit; None if it is unknown or the cache does not grow."""
        growth = self.growth_per_s
        if self.limit is None or self.last is None or growth is None or growth <= 0:
            return None
        return max(0.0, (self.limit - self.last) / growth)

    @property
    def only_front_answers(self) -> bool:
        """True if a cache that grew has stood still for 3 answers."""
        return self.still >= STILL_BEATS and (self.growth_per_s or 0.0) > 0


@dataclass(slots=True)
class Beats:
    """Answers of one trial by kind, and the longest time without one."""

    listen: int = 0
    speak: int = 0
    front: int = 0  # answers of the server's front end, which say nothing of the model
    longest_silence_s: float | None = None
    _last_s: dict[int, float] = field(default_factory=dict)

    def beat(self, session: int, at_s: float, *, speaking: bool) -> None:
        """Count an answer of the model."""
        self.speak += speaking
        self.listen += not speaking
        last = self._last_s.get(session)
        if last is not None:
            self.longest_silence_s = max(self.longest_silence_s or 0.0, at_s - last)
        self._last_s[session] = at_s

    def forget(self, session: int) -> None:
        """The session or its connection has ended."""
        self._last_s.pop(session, None)


def dropped_units(sent: int, answered: int, give_up_s: float, period_s: float) -> int:
    """Units without an answer at the end, less those that may still be answered."""
    return max(0, sent - answered - math.ceil(give_up_s / period_s))
