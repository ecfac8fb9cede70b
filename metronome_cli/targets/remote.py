"""A server on the other side of the network, as far as its pool can be seen: through its Prometheus metrics, or not.

A thread of its own scrapes once a second. Without a scrape, nothing is known of the pool, and `pool()` has no
blocks. Occupancy is stated by servers as a share; it is kept as blocks of a million.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from metronome_cli.engine.types import PoolState
from metronome_cli.errors import UsageError
from metronome_cli.forecast.prometheus import parse
from metronome_cli.forecast.servers import Reading, read
from metronome_cli.load.clock import Clock
from metronome_cli.targets.endpoint import Endpoint

SHARES = 1_000_000
FULL = 0.995
EVERY_S = 1.0
Fetch = Callable[[], str]


class RemoteTarget:
    """What `pool()` and `describe()` say of a server. `fetch` gets the text of one scrape; it may raise OSError."""

    def __init__(self, endpoint: Endpoint, fetch: Fetch | None = None, metric: str | None = None) -> None:
        self.occupancy_max = 0.0
        self.scrapes = 0
        self.failed_scrapes = 0
        self._endpoint = endpoint
        self._fetch = fetch
        self._metric = metric
        self._reading: Reading | None = None
        self._full_at: float | None = None  # time.perf_counter
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="scrape", daemon=True)
        if fetch is not None:
            self._thread.start()

    @property
    def seen(self) -> bool:
        """Whether the pool's occupancy is known."""
        return self._reading is not None

    def pool(self) -> PoolState:
        """The fullest engine's pool, as last scraped."""
        reading = self._reading
        if reading is None:
            return PoolState(0, 0, 0, 0)
        used = round(max(reading.occupancy.values(), default=0.0) * SHARES)
        return PoolState(used, SHARES, round(reading.running or 0), round(reading.waiting or 0))

    def blocks_at(self, age_s: float) -> int:
        """Not known from outside."""
        return 0

    def full_since(self, clock: Clock) -> float | None:
        """When the pool was first seen full, on that clock; None: never, or not seen."""
        if self._full_at is None:
            return None
        return max(0.0, clock.now() - (time.perf_counter() - self._full_at))

    def describe(self) -> dict[str, Any]:
        """Address, protocol, what was scraped; no credentials."""
        reading = self._reading
        known = {"server": reading.server, "pool_tokens": reading.pool_tokens} if reading else {}
        return {**self._endpoint.describe(), **known, "weights": "unknown", "scrapes": self.scrapes}

    def close(self) -> None:
        """Stop scraping."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(EVERY_S + 5.0)

    def _watch(self) -> None:
        assert self._fetch is not None
        while not self._over.is_set():
            try:
                reading = read(parse(self._fetch()), self._metric)
            except (OSError, UsageError, ValueError):
                self.failed_scrapes += 1
            else:
                self._take(reading)
            self._over.wait(EVERY_S)

    def _take(self, reading: Reading) -> None:
        self.scrapes += 1
        self._reading = reading
        level = max(reading.occupancy.values(), default=0.0)
        self.occupancy_max = max(self.occupancy_max, level)
        if self._full_at is None and level >= FULL:
            self._full_at = time.perf_counter()
