"""What a search, a point and a view need of a driver, whoever steps: this process, a server, or vLLM's own loop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import Clock
from metronome_cli.core.types import EndReason, PoolState
from metronome_cli.measure.ledger import Ledger


class Pooled(Protocol):
    """Something with a pool to look at."""

    def pool(self) -> PoolState:
        """The pool now."""


class Callers(Protocol):
    """Who is seated, and how those ended who no longer are."""

    refused: int

    @property
    def target(self) -> Pooled: ...

    @property
    def profile(self) -> Profile: ...

    @property
    def ended(self) -> Counter[EndReason]: ...

    def __len__(self) -> int: ...

    def close_newest(self, count: int, reason: EndReason = "shed") -> None:
        """Send the newest callers away."""


class Drives(Protocol):
    """A driver: callers, a clock, a ledger."""

    ledger: Ledger

    @property
    def population(self) -> Callers: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def pool_full_s(self) -> float | None:
        """When a session first found no block."""

    @property
    def occupancy_max(self) -> float: ...

    @property
    def lost_beat(self) -> int:
        """Sessions that fell further behind than the profile allows."""

    @property
    def stage_occupancy(self) -> Mapping[str, float]:
        """Of further stages' pools."""

    def seat(self, at_s: float, age_s: float = 0.0, lifetime_s: float = math.inf) -> object:
        """Seat one caller. Raises SlotRefused."""

    def run_until(self, instant_s: float) -> None:
        """Up to that instant of its clock."""
