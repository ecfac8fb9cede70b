"""When sessions of a running server reach the context that it states, from its token counters.

Sessions can end although occupancy is constant, since each has at most `max_model_len` positions. Counters are sums
over sessions, so the rate is that of the mean session. A session may be older than the first scrape, so the end is the
latest possible:

    rate [positions/s per session] = tokens counted in the watch / its length / mean number of running sessions
    latest end [s from now]        = (context - tokens counted in the watch per session) / rate

Prompt tokens count if the server tells them. Sessions that come and go make the mean session younger, and the end
later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from metronome_cli.core.errors import UsageError
from metronome_cli.core.http import parts_of
from metronome_cli.core.metrics_page import Fetch
from metronome_cli.core.quantities import format_duration
from metronome_cli.core.strict_json import BadJson, loads
from metronome_cli.protocols.server_metrics import ServerReading

SHORTEST_S = 10.0  # a rate from less is mostly noise
_MOST = 10**9


@dataclass(slots=True)
class ContextLimit:
    """Follows one server. `positions`: the context that it states."""

    positions: int
    _first: tuple[float, float] | None = None
    _last: tuple[float, float] | None = None
    _running: list[float] = field(default_factory=list)

    def add(self, t_s: float, reading: ServerReading) -> None:
        """Add one scrape. A scrape without counters or sessions starts over."""
        tokens = None if reading.delivered is None else reading.delivered + (reading.prompt or 0.0)
        if tokens is None or not reading.running or (self._last is not None and tokens < self._last[1]):
            self._first = self._last = None
            self._running.clear()
            return
        self._first = self._first or (t_s, tokens)
        self._last = (t_s, tokens)
        self._running.append(reading.running)

    def rate(self) -> float | None:
        """Return positions per second of the mean session; None if there are too few scrapes or no tokens."""
        if self._first is None or self._last is None:
            return None
        span_s, grown = self._last[0] - self._first[0], self._last[1] - self._first[1]
        if span_s < SHORTEST_S or grown <= 0:
            return None
        return grown / span_s / (sum(self._running) / len(self._running))

    def describe(self) -> str:
        """The limit and the rate, in a sentence without its full stop."""
        rate, end_s = self.rate() or 0.0, self.latest_end_s() or 0.0
        return (
            f"Sessions reach the server's context of {self.positions:,} positions by {format_duration(round(end_s))} "
            f"at the latest, at {rate:.3g} positions per second each"
        )

    def latest_end_s(self) -> float | None:
        """The instant, as fed, by which the mean session has reached the context; None if not known."""
        rate = self.rate()
        if rate is None or self._first is None:
            return None
        return self._first[0] + self.positions / rate


def stated_context(address: str, get: Fetch) -> int | None:
    """The context that the server of this metrics address states, by its list of models; None if it states none.

    vLLM and SGLang give `max_model_len`, llama.cpp `n_ctx`. One GET each, of the same host.
    """
    parts = parts_of(address, "--metrics-url", ("http", "https"), "")
    for path in ("/v1/models", "/props"):
        try:
            found = _context_in(loads(get(parts._replace(path=path, query="").geturl()).encode()))
        except (OSError, UsageError, BadJson, ValueError):
            continue
        if found is not None:
            return found
    return None


def _context_in(answer: object) -> int | None:
    """The first whole number under a known key, at most three levels down."""
    level = [answer]
    for _ in range(4):
        for part in level:
            for key in ("max_model_len", "n_ctx", "context_length"):
                value = part.get(key) if isinstance(part, dict) else None
                if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST:
                    return value
        level = [
            inner
            for part in level
            for inner in (part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
        ][:1000]
    return None
