"""Sessions that come and go: lengths from a distribution, arrivals at random, the mean number of sessions given.

At time 0 the number of sessions and what is left of each are those of equilibrium: lengths seen at a random instant are
biased towards the long ones, and what is left of one is uniform over it. Then sessions arrive as a Poisson process at
N / mean length, whether or not others have left (an open model), so a slow server gets no fewer of them.

    exp:3m             exponential, of that mean
    lognormal:3m,0.8   lognormal, of that mean and that standard deviation of the logarithm
    fixed:3m           all the same
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import parse_duration, shown
from metronome_cli.core.session import SessionSpec

CANDIDATES = 64  # lengths that one at a random instant is chosen from, in proportion to its length


@dataclass(frozen=True, slots=True)
class Churn:
    """The distribution of session lengths. `spread`: standard deviation of the logarithm, of lognormal ones."""

    kind: Literal["exp", "lognormal", "fixed"]
    mean_s: float
    spread: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Churn:
        """Raises UsageError for an unknown distribution, a length or spread that is none."""
        kind, _, rest = text.strip().partition(":")
        mean, _, spread = rest.partition(",")
        if kind not in ("exp", "lognormal", "fixed") or bool(spread) != (kind == "lognormal"):
            raise UsageError(
                f"{shown(text)} is no distribution of session lengths",
                hint="exp:3m, lognormal:3m,0.8 or fixed:3m",
            )
        mean_s = parse_duration(mean)
        if mean_s <= 0:
            raise UsageError(f"{shown(text)}: a session has to last", hint="such as exp:3m")
        return cls(kind, mean_s, cls._spread(spread, text) if spread else 0.0)  # type: ignore[arg-type]

    @staticmethod
    def _spread(text: str, where: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value <= 5:
            raise UsageError(
                f"{shown(where)}: a spread lies above 0, at most 5", hint="such as lognormal:3m,0.8"
            )
        return value

    def lengths_s(self, rng: np.random.Generator, count: int) -> list[float]:
        """Session lengths, seconds."""
        if self.kind == "fixed":
            return [self.mean_s] * count
        if self.kind == "exp":
            return [float(one) for one in rng.exponential(self.mean_s, count)]
        middle = math.log(self.mean_s) - self.spread**2 / 2
        return [float(one) for one in rng.lognormal(middle, self.spread, count)]

    def sessions(self, count: int, length_s: float, seed: int) -> Iterator[SessionSpec]:
        """`count` sessions on average, for `length_s`; in order of their start."""
        rng = np.random.default_rng([seed, count])
        numbers = itertools.count()
        for _ in range(count):
            lengths = np.array(self.lengths_s(rng, CANDIDATES))
            whole_s = float(rng.choice(lengths, p=lengths / lengths.sum()))
            age_s = float(rng.uniform(0, whole_s))
            yield SessionSpec(0.0, age_s, whole_s - age_s, next(numbers))
        at_s = 0.0
        while (at_s := at_s + float(rng.exponential(self.mean_s / count))) < length_s:
            yield SessionSpec(at_s, 0.0, self.lengths_s(rng, 1)[0], next(numbers))


def most_at_once(sessions: Sequence[SessionSpec]) -> int:
    """How many of them are open at the same time, at most."""
    changes = [(s.start_s, 1) for s in sessions] + [(s.start_s + s.lifetime_s, -1) for s in sessions]
    return max(itertools.accumulate(change for _, change in sorted(changes)), default=0)
