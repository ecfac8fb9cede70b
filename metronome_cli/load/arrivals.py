"""Arrival plans: when sessions start, how old they are then, and how long they stay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from metronome_cli.core.session import SessionSpec


def at_once(ages_s: Iterable[float], length_s: float = math.inf) -> Iterator[SessionSpec]:
    """Start all sessions at time 0, each at its own age; each ends at age `length_s`."""
    return (SessionSpec(0.0, age, length_s - age) for age in ages_s)


def ramp(count: int, rate_per_s: float, lifetime_s: float = math.inf) -> Iterator[SessionSpec]:
    """Start `count` sessions, evenly spaced at `rate_per_s` per second."""
    return (SessionSpec(index / rate_per_s, 0.0, lifetime_s) for index in range(count))


def spread_ages(count: int, session_length_s: float) -> list[float]:
    """Return evenly spread ages: (i + 1/2) / count of the session length, in seconds."""
    return [(index + 0.5) * session_length_s / count for index in range(count)]
