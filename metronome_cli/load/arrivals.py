"""When sessions ask for a seat, how old they are then, and how long they stay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Arrival:
    """A caller asks for a seat at `at_s`, having lived `age_s`, to stay `lifetime_s` (seconds)."""

    at_s: float
    age_s: float = 0.0
    lifetime_s: float = math.inf


def at_once(ages_s: Iterable[float], length_s: float = math.inf) -> Iterator[Arrival]:
    """All together at time 0, each at its own age, to stay until it has lived `length_s`."""
    return (Arrival(0.0, age, length_s - age) for age in ages_s)


def ramp(count: int, rate_per_s: float, lifetime_s: float = math.inf) -> Iterator[Arrival]:
    """Evenly spaced, `rate_per_s` a second, until `count` have come."""
    return (Arrival(index / rate_per_s, 0.0, lifetime_s) for index in range(count))


def poisson(
    rate_per_s: float, seed: int, *, until_s: float, mean_lifetime_s: float | None = None
) -> Iterator[Arrival]:
    """An open system: exponential gaps, and exponential lifetimes where a mean is given."""
    rng = np.random.default_rng([seed, 0x0A])
    at_s = float(rng.exponential(1 / rate_per_s))
    while at_s < until_s:
        lifetime = math.inf if mean_lifetime_s is None else float(rng.exponential(mean_lifetime_s))
        yield Arrival(at_s, 0.0, lifetime)
        at_s += float(rng.exponential(1 / rate_per_s))


def spread_ages(count: int, session_length_s: float) -> list[float]:
    """Ages from 0 to the session length, evenly: (i + 1/2) / count of it."""
    return [(index + 0.5) * session_length_s / count for index in range(count)]
