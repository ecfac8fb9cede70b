"""What sockets and a server's metrics told of one point, as the report has it."""

from __future__ import annotations

from collections import Counter

from metronome_cli.backends.websocket.endpoint import Endpoint
from metronome_cli.backends.websocket.monitor import ServerMonitor
from metronome_cli.backends.websocket.network_counts import NetworkCounts
from metronome_cli.core.types import EndReason
from metronome_cli.measure.histogram import LatencyHistogram
from metronome_cli.results.network_stats import NetworkStats, Spread

LATE_MS = 5.0  # a frame that goes out later than this is the generator's fault to see


def network_stats(
    counts: NetworkCounts, ended: Counter[EndReason], target: ServerMonitor, endpoint: Endpoint
) -> NetworkStats:
    """Handshakes, pacing, output rate, the server's own backlog, how sessions ended."""
    counted = bool(counts.sent_s and counts.heard_s)
    return NetworkStats(
        session_setup_ms=_spread(counts.handshake),
        send_lateness_ms=_spread(counts.pacing),
        late_send_share=counts.pacing.above(LATE_MS) / counts.pacing.total if counts.pacing.total else None,
        workers=counts.workers,
        busiest_process_cpu_share=counts.cpu_share,
        server_backlog_ms=_spread(counts.server_backlog),
        output_s_per_input_s=counts.heard_s / counts.sent_s if counted else None,
        expected_output_s_per_input_s=1.0 if endpoint.traits.steady else None,
        sessions_started=counts.handshake.total,
        sessions_rejected=ended["rejected"],
        sessions_queue_timeout=ended["queue_timeout"],
        reconnects=counts.returns,
        end_reasons={str(reason): count for reason, count in ended.items() if count},
        end_details=dict(counts.reasons),
        scrapes=target.scrapes,
        failed_scrapes=target.failed_scrapes,
        preemptions=target.preemptions,
        server_step_ms=target.step_ms,
    )


def _spread(histogram: LatencyHistogram) -> Spread:
    return Spread(
        p50=histogram.percentile(0.5),
        p99=histogram.percentile(0.99),
        p999=histogram.percentile(0.999),
        max=histogram.max_ms,
    )
