"""`predict` from a running server: scrapes its metrics repeatedly and forecasts when the pool is full.

`once`: scrape until a forecast is possible (or `watch_s` is over), then exit. Otherwise report each scrape to the
observer, and stop if the pool will probably be full within `fail_within_s`, if it is full and there is no output, after
`watch_s`, or when stopped. Sends only HTTP(S) GET requests to one address, without credentials except those in it.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from metronome_cli.commands.predict.from_trace import verdict_within
from metronome_cli.core.errors import EngineError, UsageError, Verdict
from metronome_cli.core.formatting import format_utc, plural
from metronome_cli.core.http import shown
from metronome_cli.core.metrics_page import Fetch, NoPageError, fetch, metrics_address, why_none
from metronome_cli.core.quantities import format_duration
from metronome_cli.core.stop import StopRequest
from metronome_cli.forecast.context_limit import ContextLimit, stated_context
from metronome_cli.forecast.extrapolation import FEWEST
from metronome_cli.forecast.live_forecast import LiveForecast, ScrapeHistory
from metronome_cli.protocols.prometheus_text import parse
from metronome_cli.protocols.server_metrics import ServerReading, read
from metronome_cli.results.events import Observer
from metronome_cli.results.forecast_result import Forecast, Interval
from metronome_cli.results.report_draft import ReportDraft
from metronome_cli.results.run_report import Report

ONCE_SCRAPES = 3 * FEWEST
DEFAULT_ALARM_S = 600.0  # of --once, where --fail-within is not given
ONCE_INTERVAL_S = 0.125  # between the scrapes of --once: 16 of them take 2 s
_NAP_S = 0.05


@dataclass(frozen=True, slots=True)
class ScrapePlan:
    """What to watch. Times in seconds; `watch_s` None: until stopped (with `once`: long enough for a
    forecast).
    """

    url: str
    every_s: float = 1.0
    once: bool = False
    watch_s: float | None = None
    fail_within_s: float | None = None
    fail_probability: float = 0.05
    metric: str | None = None
    window_s: float = 300.0
    session_length_s: float | None = None
    argv: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The metrics address. Raises UsageError for one that is not HTTP."""
        return metrics_address(self.url)

    @property
    def alarm_s(self) -> float | None:
        """A pool full within this is a failure."""
        return self.fail_within_s or (DEFAULT_ALARM_S if self.once else None)

    @property
    def limit_s(self) -> float | None:
        """How long to watch at most."""
        return self.watch_s or (ONCE_SCRAPES * self.every_s if self.once else None)


class Timer(Protocol):
    """Clock and waiting, replaceable in tests."""

    def now(self) -> float: ...

    def wait(self, seconds: float, stop: StopRequest) -> None: ...


class RealTimer:
    """Monotonic time from 0."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._began_s

    def wait(self, seconds: float, stop: StopRequest) -> None:
        until = self.now() + seconds
        while (rest := until - self.now()) > 0 and not stop():
            time.sleep(min(rest, _NAP_S))


def forecast_from_metrics(
    plan: ScrapePlan,
    observer: Observer,
    stop: StopRequest,
    get: Fetch = fetch,
    timer: Timer | None = None,
) -> Report:
    """Watch and forecast. Raises UsageError when the first answer is no metrics page or has no occupancy."""
    return _MetricsWatch(plan, observer, stop, get, timer or RealTimer()).run()


class _MetricsWatch:
    """One watch over one server."""

    def __init__(
        self, plan: ScrapePlan, observer: Observer, stop: StopRequest, get: Fetch, timer: Timer
    ) -> None:
        self.plan = plan
        self.observer = observer
        self.stop = stop
        self.timer = timer
        self.scrapes = ScrapeHistory(plan.window_s)
        self.reading: ServerReading | None = None
        self.sight: LiveForecast | None = None
        self.failed = self.answered = 0
        self._get = get
        self._address = plan.address
        self._told: set[str] = set()
        self.context: ContextLimit | None = None
        self.no_page: str | None = None  # what was answered in its place, at last

    def run(self) -> Report:
        draft = ReportDraft(self.plan.argv, self.plan.settings)
        self.observer.phase("scrape", shown(self._address))
        due = 0.0
        while not self.stop() and not self._over():
            self.timer.wait(due - self.timer.now(), self.stop)
            if self.stop():
                break
            self._look(self.timer.now())
            due += self.plan.every_s * max(1, -(-(self.timer.now() - due) // self.plan.every_s))
        forecast = self._forecast()
        verdict = self._verdict(self.plan.fail_probability)
        return draft.report(self._sentence(), verdict=verdict, forecast=forecast, signum=self.stop.signum)

    def _look(self, t_s: float) -> None:
        try:
            self.reading = read(
                parse(self._get(self._address), shown(self._address)),
                self.plan.metric,
                shown(self._address),
            )
        except OSError as error:
            if not self.answered and "refused" in why_none(error).lower():
                raise EngineError(
                    f"{shown(self._address)}: connection refused: no server listens there",
                    hint="start the server, or check host and port",
                ) from None
            self.failed += 1
            self.no_page = str(error) if isinstance(error, NoPageError) else self.no_page
            self.scrapes.add(t_s, None, why_none(error))
        except UsageError as error:
            if self.reading is None:
                raise
            self.failed += 1  # it has answered well before
            self.scrapes.add(t_s, None, error.message)
        else:
            self._note_not_told(self.reading)
            self.answered += 1
            if self.answered == 1 and self._get is fetch:
                stated = stated_context(self._address, self._get)
                self.context = None if stated is None else ContextLimit(stated)
            if self.context is not None:
                self.context.add(t_s, self.reading)
            self.sight = self.scrapes.add(t_s, self.reading)
        self._tell(t_s)

    def _note_not_told(self, reading: ServerReading) -> None:
        """Note once that a figure is NaN, infinite or impossible."""
        for name in reading.not_told:
            note = f"{name} is unknown: its value is negative or not a finite number"
            if note not in self.scrapes.notes:
                self.scrapes.notes.append(note)

    def _tell(self, t_s: float) -> None:
        for note in self.scrapes.notes:
            if note not in self._told:
                self._told.add(note)
                self.observer.notice(note)
        if self.sight is None or self.scrapes.down:
            return
        outlook = self.sight.outlook
        self.observer.event(
            "scrape",
            {
                "t_s": t_s,
                "occupancy": self.sight.occupancy,
                "fill_time_s": outlook.t_sat_s,
                "remaining_s": self.sight.remaining_s,
                "delivered_per_s": self.sight.delivered_per_s,
                "line": status_text(self.sight, self.reading),
            },
        )

    def _over(self) -> bool:
        plan, now = self.plan, self.timer.now()
        if plan.limit_s is not None and now >= plan.limit_s:
            return True
        if self.sight is None or self.scrapes.down:
            return False
        if self.sight.collapsed:
            return True
        known = self.sight.outlook.saturates is not None
        if plan.once:
            return known and self.answered >= 2 * FEWEST
        return self._verdict(max(0.5, plan.fail_probability)) == "fail"

    def _verdict(self, probability: float) -> Verdict | None:
        if self.plan.alarm_s is None:
            return "fail" if self.sight is not None and self.sight.collapsed else None
        if self.sight is None or self.scrapes.down:
            return "inconclusive"
        end_s = self.context.latest_end_s() if self.context is not None else None
        if self.sight.collapsed or (end_s is not None and end_s - self.sight.t_s <= self.plan.alarm_s):
            return "fail"
        return verdict_within(self.sight.outlook, self.sight.t_s, self.plan.alarm_s, probability)

    def _forecast(self) -> Forecast:
        return self._bounded_by_context(self._pool_forecast())

    def _bounded_by_context(self, forecast: Forecast) -> Forecast:
        """The same, ended by the context that the server states if that comes before a full pool."""
        if self.context is None:
            return forecast
        changed: dict[str, Any] = {"context_length": self.context.positions}
        end_s, pool_s = self.context.latest_end_s(), forecast.fill_time_s.estimate
        if end_s is not None and (pool_s is None or end_s < pool_s):
            changed |= {
                "fill_time_s": Interval(estimate=end_s, low=None, high=end_s),
                "limited_by": "context",
                "reason": self.context.describe(),
                "remaining_s": max(0.0, end_s - self.timer.now()),
            }
        return forecast.model_copy(update=changed)

    def _pool_forecast(self) -> Forecast:
        sight = self.sight
        found = sight.outlook if sight is not None else None
        return Forecast(
            source="scrape",
            session_length_s=self.plan.session_length_s,
            fill_time_s=Interval(
                estimate=found.t_sat_s if found else None,
                low=found.low_s if found else None,
                high=found.high_s if found else None,
            ),
            collapse_probability=None,
            limited_by="pool" if found and found.saturates else "none",
            max_sessions=None,
            fitting_window_tokens=None,
            fills=found.saturates if found else None,
            reason=found.reason if found else f"the server {self._nothing}",
            occupancy=sight.occupancy if sight else None,
            fill_rate_per_s=found.rate_per_s if found else None,
            fill_rate_falling=bool(found and found.falling),
            remaining_s=sight.remaining_s if sight else None,
            collapsed=bool(sight and sight.collapsed),
            sample_notes=list(dict.fromkeys([*(sight.notes if sight else ()), *self.scrapes.notes])),
            assumptions=[
                "the load stays as in the last samples",
                f"the last {format_duration(self.plan.window_s)} are fitted",
                "times count from the first scrape",
            ],
            details=self._details(),
        )

    def _details(self) -> dict[str, Any]:
        reading, sight = self.reading, self.sight
        return {
            "url": shown(self._address),
            "scrapes": self.answered,
            "failed_scrapes": self.failed,
            "server": reading.server if reading else None,
            "metric": reading.metric if reading else None,
            "engine": sight.engine if sight else None,
            "running": reading.running if reading else None,
            "waiting": reading.waiting if reading else None,
            "delivered_tokens_per_s": sight.delivered_per_s if sight else None,
            "pool_tokens": reading.pool_tokens if reading else None,
            "playback_gaps": asdict(reading.gaps) if reading and reading.gaps else None,
        }

    @property
    def _nothing(self) -> str:
        return "never answered" if self.no_page is None else f"gave no metrics ({self.no_page})"

    def _sentence(self) -> str:
        sight = self.sight
        if sight is None:
            return f"{shown(self._address)} {self._nothing} in {plural(self.failed, 'scrape')}."
        text = status_text(sight, self.reading)[0].upper() + status_text(sight, self.reading)[1:] + "."
        if sight.remaining_s:
            full_at = datetime.now(UTC) + timedelta(seconds=sight.remaining_s)
            text += f" Full at {format_utc(full_at)}."
        if self.plan.alarm_s is not None:
            text += f" Alarm: full within {format_duration(self.plan.alarm_s)}."
        if self.scrapes.down:
            text += " The server no longer responds."
        if self.context is not None and self.context.latest_end_s() is not None:
            text += f" {self.context.describe()}."
        if sight.outlook.falling:
            text += f" {sight.outlook.reason[0].upper()}{sight.outlook.reason[1:]}."
        return text


def status_text(sight: LiveForecast, reading: ServerReading | None) -> str:
    """Return one line: occupancy, fill rate, fill time, running and waiting sessions."""
    level = "unknown" if sight.occupancy is None else f"{sight.occupancy * 100:.1f} %"
    parts = [f"pool {level}"]
    outlook = sight.outlook
    if sight.collapsed:
        parts.append("collapsed: full and without output")
    elif outlook.t_sat_s is None:
        parts.append(outlook.reason if outlook.saturates is None else f"does not saturate: {outlook.reason}")
    elif sight.remaining_s == 0:
        parts.append("full")
    else:
        assert outlook.rate_per_s is not None
        low, high = (None if t is None else max(0.0, t - sight.t_s) for t in (outlook.low_s, outlook.high_s))
        span = f"{_short(low)} to {_short(high)}"
        parts.append(
            f"full in {_short(sight.remaining_s)} ({span}), {outlook.rate_per_s * 100:.2g} % per second"
        )
    if reading is not None and reading.running is not None:
        parts.append(f"{reading.running:.0f} running, {reading.waiting or 0:.0f} waiting")
    if sight.delivered_per_s is not None:
        parts.append(f"{sight.delivered_per_s:.0f} tokens/s")
    return ", ".join(parts)


def _short(seconds: float | None) -> str:
    return "never" if seconds is None else format_duration(round(seconds, 1))
