"""What sockets and a server's metrics told of one point, as the report has it."""

from __future__ import annotations

from collections import Counter

from metronome_cli.config.quantities import format_duration
from metronome_cli.engine.types import EndReason
from metronome_cli.forecast.extrapolate import extrapolate
from metronome_cli.forecast.trace import Trace
from metronome_cli.load.wire_counts import WireCounts
from metronome_cli.measure.histogram import LogHistogram
from metronome_cli.report.forecast import Forecast
from metronome_cli.report.wire import Spread, Wire
from metronome_cli.run.extrapolated import extrapolated
from metronome_cli.run.predict_trace import EARLY
from metronome_cli.targets.endpoint import Endpoint
from metronome_cli.targets.remote import RemoteTarget

LATE_MS = 5.0  # a frame that goes out later than this is the generator's fault to see
FEWEST_SAMPLES = 3
ENOUGH = 12  # samples to fit, where the first 30 % have fewer


def wire_of(counts: WireCounts, ended: Counter[EndReason], target: RemoteTarget, endpoint: Endpoint) -> Wire:
    """Handshakes, pacing, output rate, the server's own backlog, how sessions ended."""
    counted = bool(counts.sent_s and counts.heard_s)
    return Wire(
        handshake_ms=_spread(counts.handshake),
        pacing_late_ms=_spread(counts.pacing),
        late_share=counts.pacing.above(LATE_MS) / counts.pacing.total if counts.pacing.total else None,
        workers=counts.workers,
        cpu_share=counts.cpu_share,
        server_backlog_ms=_spread(counts.server_backlog),
        output_per_input=counts.heard_s / counts.sent_s if counted else None,
        expected_output_per_input=1.0 if endpoint.traits.steady else None,
        seated=counts.handshake.total,
        refused=ended["refused"],
        queued=ended["queued"],
        reconnects=counts.returns,
        ended={str(reason): count for reason, count in ended.items() if count},
        said=dict(counts.reasons),
        scrapes=target.scrapes,
        failed_scrapes=target.failed_scrapes,
        preemptions=target.preemptions,
        server_step_ms=target.step_ms,
    )


def _spread(histogram: LogHistogram) -> Spread:
    return Spread(
        p50=histogram.percentile(0.5),
        p99=histogram.percentile(0.99),
        p999=histogram.percentile(0.999),
        max=histogram.max_ms,
    )


def forecast_of(
    trace: Trace | None, full_s: float | None, sessions: int, length_s: float, server: str
) -> Forecast | None:
    """What the scraped occupancy of one point foretells: of one that filled, what its first 30 % foretold.

    Times on the point's clock; `full_s` is when its pool was full. None where there are too few samples.
    """
    if trace is None or len(trace) < FEWEST_SAMPLES:
        return None
    fitted = trace if full_s is None else _early(trace)
    found = extrapolate(fitted)
    return extrapolated(
        found,
        fitted,
        source="scrape",
        sessions=sessions,
        session_length_s=length_s,
        observed_t_sat_s=full_s,
        gaps=list(trace.notes),
        assumptions=[
            "the same sessions go on as they did in the fitted part",
            "nothing bounds the cache later on",
        ],
        details={"server": server, "samples": len(trace), "samples_fitted": len(fitted)},
    )


def _early(rise: Trace) -> Trace:
    return rise.first(min(1.0, max(EARLY, ENOUGH / len(rise)))) if len(rise) else rise


def in_words(forecast: Forecast) -> str:
    """A sentence for the answer; empty where the pool is not on its way to be full."""
    t_sat, seen_s = forecast.t_sat_s.estimate, forecast.observed_t_sat_s
    who = f"with {forecast.sessions} session{'' if forecast.sessions == 1 else 's'}"
    if seen_s is not None:
        after = f"after {_short(forecast.fitted_until_s or 0.0)}"
        told = "" if t_sat is None else f"; foretold {after} for {_short(t_sat)}"
        return f"The server's KV pool {who} was full at {_short(seen_s)}{told}."
    if t_sat is None:
        return ""
    return f"The server's KV pool {who} will be full at {_short(t_sat)} if they go on."


def _short(seconds: float) -> str:
    return format_duration(round(seconds, 1) if seconds < 100 else round(seconds))
