"""A server on the other side of the network, as far as it can be seen: through its Prometheus metrics, or not.

A thread of its own scrapes once a second. Without a scrape, nothing is known of the pool, and `pool()` has no
blocks. Occupancy is stated by servers as a share; it is kept as blocks of a million.

**Full** is a pool of which no more than half a percent is free, or one that is nearly full while sessions wait for
a block: an engine whose next frame needs more blocks than are left stops below 100 %.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from metronome_cli.backends.websocket.endpoint import Endpoint
from metronome_cli.core.clock import Clock
from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import PoolState
from metronome_cli.forecast.occupancy_trace import FULL, OccupancyTrace, clean_trace
from metronome_cli.protocols.prometheus_text import parse
from metronome_cli.protocols.server_metrics import ServerReading, read_any

SHARES = 1_000_000
NEARLY_FULL = 0.9
EVERY_S = 1.0
FetchPage = Callable[[], str]


class ServerMonitor:
    """What `pool()` and `describe()` say of a server. `fetch` gets the text of one scrape; it may raise OSError."""

    def __init__(
        self,
        endpoint: Endpoint,
        fetch: FetchPage | None = None,
        metric: str | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        self.occupancy_max = 0.0
        self.scrapes = 0
        self.failed_scrapes = 0
        self.why_failed = ""
        self._endpoint = endpoint
        self._fetch = fetch
        self._metric = metric
        self._every_s = every_s
        self._first: ServerReading | None = None
        self._reading: ServerReading | None = None
        self._series: dict[str, list[tuple[float, float]]] = {}  # by engine: (perf_counter, occupancy)
        self._full_at: float | None = None  # time.perf_counter
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="scrape", daemon=True)
        if fetch is not None:
            self._thread.start()

    def begin(self) -> None:
        """From now on: what was scraped before was of those who have hung up."""
        self._first = self._reading = self._full_at = None
        self._series = {}
        self.occupancy_max = 0.0

    @property
    def seen(self) -> bool:
        """Whether the pool's occupancy is known."""
        return self._reading is not None and bool(self._reading.told)

    def pool(self) -> PoolState:
        """The fullest engine's pool, as last scraped; without one, sessions alone."""
        reading = self._reading
        if reading is None:
            return PoolState(0, 0, 0, 0)
        used = round(max(reading.told.values(), default=0.0) * SHARES)
        total = SHARES if reading.told else 0
        return PoolState(used, total, round(reading.running or 0), round(reading.waiting or 0))

    def blocks_at(self, age_s: float) -> int:
        """Not known from outside."""
        return 0

    def full_since(self, clock: Clock) -> float | None:
        """When the pool was first seen full, on that clock; None: never, or not seen."""
        if self._full_at is None:
            return None
        return max(0.0, clock.now() - (time.perf_counter() - self._full_at))

    def trace(self, clock: Clock, from_s: float = 0.0) -> OccupancyTrace | None:
        """The fullest engine's occupancy from that instant to a full pool, on that clock; None: none was seen."""
        offset_s = clock.now() - time.perf_counter()
        until = math.inf if self._full_at is None else self._full_at
        series = max(
            self._series.values(), key=lambda samples: max(level for _, level in samples), default=[]
        )
        rows = [(t + offset_s, level) for t, level in list(series) if t <= until and t + offset_s >= from_s]
        return clean_trace(rows, "scrape") if rows else None

    @property
    def preemptions(self) -> int | None:
        """Since the first scrape; None where the server does not count them."""
        counted = self._grown("preempted")
        return None if counted is None else round(counted)

    @property
    def step_ms(self) -> float | None:
        """Mean step of the engine since the first scrape, as the server says; None where it does not."""
        seconds, steps = self._grown("step_s"), self._grown("steps")
        return 1e3 * seconds / steps if seconds is not None and steps else None

    def describe(self) -> dict[str, Any]:
        """Address, protocol, what was scraped; no credentials."""
        reading = self._reading
        known = {"server": reading.server, "pool_tokens": reading.pool_tokens} if reading else {}
        return {**self._endpoint.describe(), **known, "weights": "unknown", "scrapes": self.scrapes}

    def close(self) -> None:
        """Stop scraping."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(self._every_s + 5.0)

    def _grown(self, counter: str) -> float | None:
        """How far a counter went since the first scrape; None where it is not there, or began anew."""
        first = None if self._first is None else getattr(self._first, counter)
        last = None if self._reading is None else getattr(self._reading, counter)
        return last - first if first is not None and last is not None and last >= first else None

    def _watch(self) -> None:
        assert self._fetch is not None
        due_s = time.perf_counter()
        while not self._over.is_set():
            try:
                reading = read_any(parse(self._fetch()), self._metric)
            except (OSError, UsageError, ValueError) as error:
                self.failed_scrapes += 1
                self.why_failed = error.message if isinstance(error, UsageError) else str(error)
            else:
                self._take(reading)
            due_s = max(due_s + self._every_s, time.perf_counter())
            self._over.wait(due_s - time.perf_counter())

    def _take(self, reading: ServerReading) -> None:
        now_s = time.perf_counter()
        self.scrapes += 1
        self._first = self._first or reading
        self._reading = reading
        for engine, level in reading.told.items():
            self._series.setdefault(engine, []).append((now_s, min(max(level, 0.0), 1.0)))
        level = max(reading.told.values(), default=0.0)
        self.occupancy_max = max(self.occupancy_max, level)
        if self._full_at is None and (level >= FULL or (level >= NEARLY_FULL and reading.waiting)):
            self._full_at = now_s
