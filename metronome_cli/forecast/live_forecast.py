"""Forecast of a running server from its occupancy, updated with each scrape.

Fed with (time, reading); a scrape that failed is fed as None and leaves a gap that is stated. A later start
time or a token counter that goes back is a restart: what came before is dropped. So is everything before a
fall of the occupancy (forecast/occupancy_trace.py). Only the last `window_s` seconds are fitted, since sessions come
and go.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from metronome_cli.forecast.drifting_rate import extrapolate_drifting
from metronome_cli.forecast.extrapolation import Extrapolation
from metronome_cli.forecast.occupancy_trace import FULL, OccupancyTrace, clean_trace
from metronome_cli.protocols.server_metrics import ServerReading

STALL_S = 5.0  # full for so long without a token: collapsed


@dataclass(frozen=True, slots=True)
class LiveForecast:
    """Forecast after a scrape. `engine` is the labels of the series that is full first; times as fed."""

    t_s: float
    engine: str
    occupancy: float | None
    outlook: Extrapolation
    collapsed: bool
    delivered_per_s: float | None
    notes: tuple[str, ...]

    @property
    def remaining_s(self) -> float | None:
        """From now to a full pool."""
        return None if self.outlook.t_sat_s is None else max(0.0, self.outlook.t_sat_s - self.t_s)


@dataclass(slots=True)
class ScrapeHistory:
    """Stores scrapes and computes forecasts from them."""

    window_s: float = 300.0
    notes: list[str] = field(default_factory=list)
    _series: dict[str, deque[tuple[float, float | None]]] = field(default_factory=dict)
    _last: ServerReading | None = None
    _delivered: deque[tuple[float, float]] = field(default_factory=deque)
    _down_since: float | None = None
    _full_since: float | None = None

    def add(self, t_s: float, reading: ServerReading | None, why: str = "no answer") -> LiveForecast | None:
        """Add one scrape and return the forecast, or None if the scrape failed."""
        if reading is None:
            if self._down_since is None:
                self._down_since = t_s
                self.notes.append(f"{why} from {t_s:.1f} s on")
            return None
        if self._down_since is not None:
            self.notes.append(f"the server responds again at {t_s:.1f} s")
            self._down_since = None
        self._notice_restart(t_s, reading)
        self._last = reading
        self._remember(t_s, reading)
        return self.sight(t_s)

    @property
    def down(self) -> bool:
        """True if the last scrape failed."""
        return self._down_since is not None

    def sight(self, t_s: float) -> LiveForecast:
        """The forecast of the engine that is full first."""
        each = {key: (trace, extrapolate_drifting(trace)) for key, trace in self._traces().items()}
        key = min(each, key=lambda k: (_order(each[k][1]), -_level(each[k][0])), default="")
        trace, outlook = each.get(key, (None, Extrapolation(None, "no sample yet")))
        level = float(trace.occupancy[-1]) if trace is not None and len(trace) else None
        rate = self._rate()
        return LiveForecast(
            t_s=t_s,
            engine=key,
            occupancy=level,
            outlook=outlook,
            collapsed=self._stalled(t_s, level, rate),
            delivered_per_s=rate,
            notes=(*self.notes, *(trace.notes if trace is not None else ())),
        )

    def _traces(self) -> dict[str, OccupancyTrace]:
        return {
            key: clean_trace(list(samples), key or "scrape", live=True)
            for key, samples in self._series.items()
        }

    def _remember(self, t_s: float, reading: ServerReading) -> None:
        for gone in self._series.keys() - reading.occupancy.keys():
            self.notes.append(f"series {{{gone}}} is gone since {t_s:.1f} s")
            del self._series[gone]
        for key, value in reading.occupancy.items():
            series = self._series.setdefault(key, deque())
            series.append((t_s, value))
            _forget(series, t_s - self.window_s)
        if reading.delivered is not None:
            self._delivered.append((t_s, reading.delivered))
            _forget(self._delivered, t_s - max(STALL_S, self.window_s / 10))

    def _notice_restart(self, t_s: float, reading: ServerReading) -> None:
        last = self._last
        if last is None:
            return
        later = (
            last.started is not None and reading.started is not None and reading.started > last.started + 1
        )
        back = (
            last.delivered is not None
            and reading.delivered is not None
            and reading.delivered < last.delivered
        )
        if later or back:
            self.notes.append(f"the server restarted before {t_s:.1f} s; only later samples count")
            self._series.clear()
            self._delivered.clear()
            self._full_since = None

    def _rate(self) -> float | None:
        """Return recent tokens per second."""
        if len(self._delivered) < 2:
            return None
        (t_a, first), (t_b, last) = self._delivered[0], self._delivered[-1]
        return (last - first) / (t_b - t_a) if t_b > t_a else None

    def _stalled(self, t_s: float, level: float | None, rate: float | None) -> bool:
        """True if the pool has been full for `STALL_S` without a token, if the server counts tokens."""
        if level is None or level < FULL:
            self._full_since = None
            return False
        if self._full_since is None:
            self._full_since = t_s
        return t_s - self._full_since >= STALL_S and rate == 0  # None: the server does not count tokens


def _forget(series: deque[tuple[float, float | None]] | deque[tuple[float, float]], before_s: float) -> None:
    while series and series[0][0] < before_s:
        series.popleft()


def _order(outlook: Extrapolation) -> float:
    return math.inf if outlook.t_sat_s is None else outlook.t_sat_s


def _level(trace: OccupancyTrace) -> float:
    return float(trace.occupancy[-1]) if len(trace) else 0.0
