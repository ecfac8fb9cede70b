"""Brings callers to the door and lets in those whom admission allows; the rest get a clean rejection."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from metronome_cli.backends.in_process.driver import Driver
from metronome_cli.core.types import SessionRefused
from metronome_cli.load.arrivals import Arrival

Admission = Callable[[Arrival], bool]


class Feeder:
    """A plan of arrivals in front of a driver. Counts: offered = admitted + rejected + refused."""

    def __init__(
        self, driver: Driver, arrivals: Iterable[Arrival], admits: Admission = lambda arrival: True
    ) -> None:
        self.driver = driver
        self.offered = 0
        self.rejected = 0  # by admission
        self.refused = 0  # by the engine
        self._arrivals = iter(arrivals)
        self._next = next(self._arrivals, None)
        self._admits = admits

    def seat_first(self) -> None:
        """Seat everybody who is there at time 0, then start the clock: a full house is not a late one."""
        while self._next is not None and self._next.at_s <= 0.0 and not self.driver.stopped():
            self._take()
        self.driver.start()

    def run_until(self, instant_s: float) -> None:
        """Serve frames, and seat who arrives on the way."""
        driver = self.driver
        while self._next is not None and self._next.at_s < instant_s and not driver.stopped():
            if self._next.at_s > driver.clock.now():
                driver.run_until(self._next.at_s)
            self._take()
        driver.run_until(instant_s)

    @property
    def next_s(self) -> float:
        """When the next caller comes; infinity when no more will."""
        return math.inf if self._next is None else self._next.at_s

    def _take(self) -> None:
        """The next caller in the plan is at the door."""
        arrival = self._next
        assert arrival is not None
        self._next = next(self._arrivals, None)
        self.offered += 1
        if not self._admits(arrival):
            self.rejected += 1
            self.driver.population.knock(arrival)
            return
        try:
            self.driver.seat(arrival.at_s, arrival.age_s, arrival.lifetime_s)
        except SessionRefused:
            self.refused += 1
