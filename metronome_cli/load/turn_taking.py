"""Turn-taking of one session: drawn by the load driver, and used by the forecast.

An alternating renewal process with exponential turns. The model speaks for turns of mean `turn_s`, listens
for turns of mean `turn_s (1 - share) / share`, and is found speaking at age 0 with probability `share`. With
these means the long-run share of speech is `share`, and with this start the process is stationary from the
first frame on. Exponential turns make it a two-state Markov chain, whose occupation time has a known law
(forecast/speaking_time.py).
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

import numpy as np

_SALT = 0x7E12  # keeps these draws apart from other uses of the same seed
_BATCH = 32  # turns drawn at a time


@dataclass(frozen=True, slots=True)
class TurnTakingProcess:
    """The process itself. `share` is 0..1, `turn_s` the mean length in seconds of one turn of the model."""

    share: float
    turn_s: float

    def __post_init__(self) -> None:
        if not (0 <= self.share <= 1 and 0 < self.turn_s < math.inf):
            raise ValueError("share must lie in 0..1 and turn_s be positive and finite")

    @property
    def varies(self) -> bool:
        """False when the model always or never speaks."""
        return 0 < self.share < 1

    @property
    def listen_s(self) -> float:
        """Mean length of the turns in between; infinite when the model never speaks."""
        return self.turn_s * (1 - self.share) / self.share if self.share else math.inf

    @property
    def relaxation_per_s(self) -> float:
        """theta = 1/turn_s + 1/listen_s: the state has covariance share (1 - share) e^(-theta h) at lag h."""
        return 1 / (self.turn_s * (1 - self.share)) if self.varies else math.inf


class DrawnTurns:
    """One session's turns, the same for the same seed whatever is asked and in which order.

    Asking in order of time costs next to nothing; going back costs one bisection.
    """

    def __init__(self, share: float, turn_s: float, seed: int) -> None:
        self.process = TurnTakingProcess(share, turn_s)
        self._rng = np.random.default_rng([_SALT, seed])
        self._first = bool(self._rng.random() < share)
        self._changes: list[float] = []  # instants at which the state flips, ascending
        self._passed = 0  # flips before the last instant asked for

    def speaking(self, t_s: float) -> bool:
        """Whether the model speaks at that age of the session."""
        if not self.process.varies:
            return self._first
        while not self._changes or self._changes[-1] <= t_s:
            self._draw()
        changes = self._changes
        if self._passed and changes[self._passed - 1] > t_s:
            self._passed = bisect.bisect_right(changes, t_s)
        while changes[self._passed] <= t_s:
            self._passed += 1
        return self._first == (self._passed % 2 == 0)

    def runs(self, age_s: float, period_s: float, frames: int) -> list[int]:
        """Return the values of `speaking` at the start of `frames` frames as run lengths: listening, speaking, ..."""
        instants = age_s + np.arange(frames) * period_s
        if not self.process.varies:
            return [0, frames] if self._first else [frames]
        while not self._changes or self._changes[-1] <= instants[-1]:
            self._draw()
        passed = np.searchsorted(self._changes, instants, side="right")
        speaks = (passed % 2 == 0) == self._first
        edges = np.flatnonzero(np.diff(speaks)) + 1
        lengths = np.diff([0, *edges.tolist(), frames]).tolist()
        return [0, *lengths] if speaks[0] else list(lengths)

    def _draw(self) -> None:
        """A further batch of turns; batches hold an even number, so each begins in the state of the first."""
        means = (self.process.turn_s, self.process.listen_s) if self._first else (
            self.process.listen_s, self.process.turn_s
        )  # fmt: skip
        lengths = self._rng.exponential(1.0, _BATCH) * np.tile(means, _BATCH // 2)
        start = self._changes[-1] if self._changes else 0.0
        self._changes.extend((start + np.cumsum(lengths)).tolist())
