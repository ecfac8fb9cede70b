"""How many GPUs a service needs: blocking, headroom, and the loss of a node.

Every GPU has `per_gpu` slots for sessions, less a headroom that stays free. If the router sends each session to any
free slot, G GPUs are one group of servers and Erlang's loss formula holds (forecast/erlang.py). If it routes at
random (DNS, hashing), each GPU is a group of its own with 1/G of the load, and blocks far more; both are given. For
a peak number of sessions instead of a load, the sessions beyond the slots are rejected; routed at random, each
session reaches a GPU with probability 1/G, so the number on one GPU is binomial.

A node that fails ends its share of the sessions in progress. Those sessions reconnect at once and take the free
slots of the other nodes. The load that follows meets the fleet without that node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.erlang import blocking
from metronome_cli.results.forecast_result import FleetSize

MOST_GPUS = 1_000_000


@dataclass(frozen=True, slots=True)
class FleetDemand:
    """Offered load in erlangs, or a peak number of sessions. Exactly one is set."""

    erlangs: float | None = None
    peak: int | None = None

    def blocked(self, slots: int) -> float:
        """Return the share of sessions rejected with this many slots, 0 to 1."""
        if self.erlangs is not None:
            return blocking(self.erlangs, slots)
        assert self.peak is not None
        return max(0.0, 1 - slots / self.peak)

    @property
    def sessions(self) -> float:
        """Mean number of sessions if none is rejected."""
        return self.erlangs if self.erlangs is not None else float(self.peak or 0)

    def blocked_at_random(self, gpus: int, each: int) -> float:
        """Return the share rejected if sessions are routed at random to GPUs of `each` slots."""
        if self.erlangs is not None:
            return blocking(self.erlangs / gpus, each)
        assert self.peak is not None
        return _excess(self.peak, gpus, each) * gpus / self.peak


def _excess(sessions: int, gpus: int, slots: int) -> float:
    """Mean number of sessions beyond `slots` on one GPU, from the binomial's terms in logarithms."""
    if gpus == 1 or sessions <= slots:
        return float(max(0, sessions - slots))
    k = np.arange(sessions)
    steps = np.log(sessions - k) - np.log(k + 1.0) - math.log(gpus - 1)  # from P(k) to P(k + 1)
    logs = sessions * math.log1p(-1 / gpus) + np.cumsum(steps)  # of P(1), P(2), ...
    return float(np.sum(np.exp(logs[slots:]) * (k[slots:] + 1 - slots)))


@dataclass(frozen=True, slots=True)
class Fleet:
    """Fleets of any size for one demand. `slots_per_gpu` is less the headroom."""

    demand: FleetDemand
    per_gpu: int
    target: float
    headroom: float = 0.0
    gpus_per_node: int = 1

    @property
    def slots_per_gpu(self) -> int:
        return math.floor(self.per_gpu * (1 - self.headroom) + 1e-9)

    @property
    def needed(self) -> int:
        """Fewest GPUs, in whole nodes, that meet the target with every node up.

        Raises UsageError past a million.
        """
        node = self.gpus_per_node
        return node * _fewest(lambda n: self.demand.blocked(n * node * self.slots_per_gpu) <= self.target)

    @property
    def needed_with_spare(self) -> int:
        """Fewest GPUs that meet the target with one node down, in whole nodes."""
        return self.needed + self.gpus_per_node

    def size(self, gpus: int) -> FleetSize:
        """Return the figures of a fleet of this size."""
        each, slots = self.slots_per_gpu, gpus * self.slots_per_gpu
        rejected = self.demand.blocked(slots)
        carried = self.demand.sessions * (1 - rejected)
        lost = min(gpus, self.gpus_per_node)
        lost_sessions = carried * lost / gpus
        left = (gpus - lost) * each
        free = left - (carried - lost_sessions)
        return FleetSize(
            gpus=gpus,
            slots=slots,
            utilisation=carried / slots,
            blocking=rejected,
            random_routing_blocking=self.demand.blocked_at_random(gpus, each),
            node_down_blocking=self.demand.blocked(left),
            sessions_lost_with_node=lost_sessions,
            readmitted_share=min(1.0, max(0.0, free / lost_sessions)) if lost_sessions else 1.0,
        )

    def table(self) -> list[FleetSize]:
        """Return sizes from slightly too small to beyond a spare node."""
        needed, spare = self.needed, self.needed_with_spare
        node = self.gpus_per_node
        step = node * max(1, round(0.02 * needed / node))
        sizes = {needed + step * offset for offset in (-3, -2, -1, 0, 1, 2, 3)} | {spare, spare + step}
        return [self.size(size) for size in sorted(sizes) if size >= 1]


def _fewest(enough: Callable[[int], bool]) -> int:
    high = 1
    while not enough(high):
        high *= 2
        if high > MOST_GPUS:
            raise UsageError(
                "more than a million GPUs would be needed", hint="a smaller load, or more sessions per GPU"
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
