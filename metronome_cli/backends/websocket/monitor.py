"""State of a server over the network, read from its Prometheus metrics if it has any.

A thread scrapes once per second. Without metrics the state of the pool is unknown. Servers report occupancy as a
share; it is stored as blocks of 1,000,000.

A pool is **full** if at most 0.5 % of it is free, or if it is nearly full while sessions wait for a block: an engine
whose next frame needs more blocks than are free stops below 100 %.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from metronome_cli.backends.interface import BackendStats, NetworkState
from metronome_cli.backends.websocket.endpoint import Endpoint, probe_connection
from metronome_cli.backends.websocket.socket_host import SocketHost
from metronome_cli.backends.websocket.worker_client import WorkerClient
from metronome_cli.core.clock import Clock
from metronome_cli.core.errors import UsageError
from metronome_cli.core.session import HostEvent, SessionEnded
from metronome_cli.core.types import PoolState
from metronome_cli.forecast.occupancy_trace import FULL, OccupancyTrace, clean_trace
from metronome_cli.protocols.prometheus_text import parse
from metronome_cli.protocols.server_metrics import ServerReading, read_any

SHARES = 1_000_000
NEARLY_FULL = 0.9
EVERY_S = 1.0
FetchPage = Callable[[], str]


class ServerMonitor:
    """Implements `Monitor`. `fetch` gets the text of one scrape; it may raise OSError.

    The scraping thread writes its readings under a lock, and all readers take the same lock.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        hosts: Sequence[SocketHost | WorkerClient],
        stop: Callable[[], bool],
        fetch: FetchPage | None = None,
        metric: str | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._hosts = hosts
        self._stop = stop
        self._fetch = fetch
        self._metric = metric
        self._every_s = every_s
        self._leaving_at: float | None = None  # when the first session ended, time.perf_counter
        self._ended: Counter[bool] = Counter()  # sessions, by whether the connection was cut off
        self._lock = threading.Lock()
        self._scrapes = self._failed_scrapes = 0
        self._forget()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="scrape", daemon=True)
        if fetch is not None:
            self._thread.start()

    def _forget(self) -> None:
        self._occupancy_max = 0.0
        self._first: ServerReading | None = None
        self._reading: ServerReading | None = None
        self._series: dict[str, list[tuple[float, float]]] = {}  # by engine: (perf_counter, occupancy)
        self._full_at: float | None = None  # time.perf_counter

    def begin(self) -> None:
        """Discard earlier readings, which belong to earlier sessions."""
        with self._lock:
            self._forget()
            self._leaving_at = None

    def take(self, event: HostEvent) -> None:
        if isinstance(event, SessionEnded):
            self._ended[event.reason in ("connection_closed", "unreachable")] += 1
            self._leaving_at = self._leaving_at or time.perf_counter()

    def stats(self) -> BackendStats:
        with self._lock:
            reading = self._reading
            seen = reading is not None and bool(reading.occupancy)
            preemptions = self._grown("preempted")
            return BackendStats(
                pool=None if reading is None else _pool(reading),
                occupancy_max=self._occupancy_max if seen else None,
                pool_full_s=self._full_since(),
                preemptions=None if preemptions is None else round(preemptions),
                occupancy=self._trace(),
                server="" if reading is None else reading.server,
                network=self._network(),
            )

    def _network(self) -> NetworkState:
        workers = [host for host in self._hosts if isinstance(host, WorkerClient)]
        shares = [host.cpu_share for host in self._hosts if host.cpu_share is not None]
        seconds, steps = self._grown("step_s"), self._grown("steps")
        return NetworkState(
            steady=self._endpoint.traits.steady,
            idle_timeout_s=self._endpoint.limits.idle_s,
            workers=len(workers),
            cpu_share=max(shares, default=None),
            scrapes=self._scrapes,
            failed_scrapes=self._failed_scrapes,
            server_step_ms=1e3 * seconds / steps if seconds is not None and steps else None,
        )

    def _full_since(self) -> float | None:
        """Return when the pool was first seen full, on the trial clock; None if it never was."""
        if self._full_at is None:
            return None
        return max(0.0, self._clock.now() - (time.perf_counter() - self._full_at))

    def _trace(self) -> OccupancyTrace | None:
        """Return the occupancy trace of the fullest engine with all sessions, from time 0 to a full pool, on the trial
        clock; None if no occupancy was read.
        """
        offset_s = self._clock.now() - time.perf_counter()
        until = min(self._full_at or math.inf, self._leaving_at or math.inf)
        series = max(
            self._series.values(), key=lambda samples: max(level for _, level in samples), default=[]
        )
        rows = [(t + offset_s, level) for t, level in series if t <= until and t + offset_s >= 0]
        return clean_trace(rows, "scrape") if rows else None

    def _grown(self, counter: str) -> float | None:
        """Return the increase of a counter since the first scrape; None if it is missing or was reset."""
        first = None if self._first is None else getattr(self._first, counter)
        last = None if self._reading is None else getattr(self._reading, counter)
        return last - first if first is not None and last is not None and last >= first else None

    def close(self) -> None:
        """Stop scraping. Raises EngineError if every session was cut off and the server no longer responds; then it has
        stopped, so the trial has no result.
        """
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(self._every_s + 5.0)
        if self._ended[True] and not self._ended[False] and not self._stop():
            asyncio.run(probe_connection(self._endpoint, any_answer=True))

    def _watch(self) -> None:
        assert self._fetch is not None
        due_s = time.perf_counter()
        while not self._over.is_set():
            try:
                reading = read_any(parse(self._fetch()), self._metric)
            except (OSError, UsageError, ValueError):
                with self._lock:
                    self._failed_scrapes += 1
            else:
                self._read(reading)
            due_s = max(due_s + self._every_s, time.perf_counter())
            self._over.wait(due_s - time.perf_counter())

    def _read(self, reading: ServerReading) -> None:
        """Record one scrape."""
        now_s, level = time.perf_counter(), max(reading.occupancy.values(), default=0.0)
        with self._lock:
            self._scrapes += 1
            self._first = self._first or reading
            self._reading = reading
            for engine, own in reading.occupancy.items():
                self._series.setdefault(engine, []).append((now_s, min(max(own, 0.0), 1.0)))
            self._occupancy_max = max(self._occupancy_max, level)
            if self._full_at is None and (level >= FULL or (level >= NEARLY_FULL and reading.waiting)):
                self._full_at = now_s


def _pool(reading: ServerReading) -> PoolState:
    """Return the state of the fullest engine's pool; without an occupancy, only session counts."""
    used = round(max(reading.occupancy.values(), default=0.0) * SHARES)
    total = SHARES if reading.occupancy else 0
    return PoolState(used, total, round(reading.running or 0), round(reading.waiting or 0))
