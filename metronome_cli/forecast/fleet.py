"""How many GPUs for a stream of callers: blocking, headroom, and what a node's failure does.

Every GPU seats at most `per_gpu` sessions (less a headroom that is kept free). With a dispatcher that sends
a caller to any free seat, G GPUs are one group of G x seats servers and Erlang's formula holds
(forecast/erlang.py). Dealt out blindly instead (by DNS, by hash), each GPU is a group of its own with 1/G
of the load and blocks far more; both are given. A peak of sessions, instead of a load, is taken as it is:
who exceeds the seats is turned away. Dealt out blindly, each of its sessions comes to a GPU with probability
1/G, so that a GPU's number is binomial.

A node that fails takes its share of the sessions in progress with it. Those callers come back at once and
find the seats that the others have free; the load that follows meets a fleet without that node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.erlang import blocking

MOST_GPUS = 1_000_000


@dataclass(frozen=True, slots=True)
class FleetDemand:
    """Erlangs offered, or a peak of sessions (exactly one is set)."""

    erlangs: float | None = None
    peak: int | None = None

    def blocked(self, seats: int) -> float:
        """Share of callers turned away with so many seats, 0..1."""
        if self.erlangs is not None:
            return blocking(self.erlangs, seats)
        assert self.peak is not None
        return max(0.0, 1 - seats / self.peak)

    @property
    def sessions(self) -> float:
        """Sessions at once when nobody is turned away."""
        return self.erlangs if self.erlangs is not None else float(self.peak or 0)

    def blocked_blindly(self, gpus: int, each: int) -> float:
        """The same when callers are dealt out at random to so many GPUs of `each` seats."""
        if self.erlangs is not None:
            return blocking(self.erlangs / gpus, each)
        assert self.peak is not None
        return _excess(self.peak, gpus, each) * gpus / self.peak


def _excess(sessions: int, gpus: int, seats: int) -> float:
    """Mean number of sessions beyond `seats` on one GPU: the binomial's terms above it, in logarithms."""
    if gpus == 1 or sessions <= seats:
        return float(max(0, sessions - seats))
    k = np.arange(sessions)
    steps = np.log(sessions - k) - np.log(k + 1.0) - math.log(gpus - 1)  # from P(k) to P(k + 1)
    logs = sessions * math.log1p(-1 / gpus) + np.cumsum(steps)  # of P(1), P(2), ...
    return float(np.sum(np.exp(logs[seats:]) * (k[seats:] + 1 - seats)))


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A fleet of one size. Shares are 0..1."""

    gpus: int
    seats: int
    utilisation: float
    blocking: float  # any free seat
    blind_blocking: float  # callers dealt out blindly
    node_down_blocking: float
    displaced: float  # sessions on one node, on average
    reseated: float  # share of those that find a seat elsewhere at once


@dataclass(frozen=True, slots=True)
class Fleet:
    """Sizes of a fleet against a demand. `seats_per_gpu` has the headroom taken off."""

    demand: FleetDemand
    per_gpu: int
    target: float
    headroom: float = 0.0
    gpus_per_node: int = 1

    @property
    def seats_per_gpu(self) -> int:
        return math.floor(self.per_gpu * (1 - self.headroom) + 1e-9)

    @property
    def needed(self) -> int:
        """Fewest GPUs that keep blocking at the target, with every node up. Raises UsageError past a million."""
        return _fewest(lambda gpus: self.demand.blocked(gpus * self.seats_per_gpu) <= self.target)

    @property
    def needed_with_spare(self) -> int:
        """Fewest GPUs that keep it with one node down: whole nodes."""
        nodes = -(-self.needed // self.gpus_per_node) + 1
        return nodes * self.gpus_per_node

    def row(self, gpus: int) -> FleetRow:
        """What a fleet of that size does."""
        each, seats = self.seats_per_gpu, gpus * self.seats_per_gpu
        turned = self.demand.blocked(seats)
        carried = self.demand.sessions * (1 - turned)
        lost = min(gpus, self.gpus_per_node)
        displaced = carried * lost / gpus
        left = (gpus - lost) * each
        free = left - (carried - displaced)
        return FleetRow(
            gpus=gpus,
            seats=seats,
            utilisation=carried / seats,
            blocking=turned,
            blind_blocking=self.demand.blocked_blindly(gpus, each),
            node_down_blocking=self.demand.blocked(left),
            displaced=displaced,
            reseated=min(1.0, max(0.0, free / displaced)) if displaced else 1.0,
        )

    def table(self) -> list[FleetRow]:
        """Sizes from a little too small to a spare node and some."""
        needed, spare = self.needed, self.needed_with_spare
        step = max(1, round(0.02 * needed))
        sizes = {needed + step * offset for offset in (-3, -2, -1, 0, 1, 2, 3)} | {spare, spare + step}
        return [self.row(size) for size in sorted(sizes) if size >= 1]


def _fewest(enough: Callable[[int], bool]) -> int:
    high = 1
    while not enough(high):
        high *= 2
        if high > MOST_GPUS:
            raise UsageError(
                "more than a million GPUs would be needed", hint="a smaller load, or more sessions a GPU"
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
