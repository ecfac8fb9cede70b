"""The part of a report that only a run over the network can fill."""

from __future__ import annotations

from pydantic import Field

from metronome_cli.results.part import Natural, ReportPart


class Spread(ReportPart):
    """How a time was spread, in milliseconds; null where nothing was counted."""

    p50: float | None = None
    """Median."""
    p99: float | None = None
    """99th percentile."""
    p999: float | None = None
    """99.9th percentile."""
    max: float | None = None
    """The longest."""


class NetworkStats(ReportPart):
    """Network statistics of a trial on a server."""

    session_setup_ms: Spread = Spread()
    """Session setup: from opening the connection until the session is ready, including a queue."""
    send_lateness_ms: Spread = Spread()
    """From the planned send time of a frame to its write to the socket; error of the load generator."""
    late_send_share: float | None = None
    """Share of the frames that went out more than 5 ms after their time; null: none was sent."""
    workers: Natural = 0
    """Worker processes beside the main one; 0: sessions ran in the main process."""
    busiest_process_cpu_share: float | None = None
    """Processor time of the busiest worker process during the trial, as a share of one core."""
    server_backlog_ms: Spread = Spread()
    """Input that the server reports as not yet processed, if its protocol has such a message."""
    output_s_per_input_s: float | None = None
    """Seconds of output per second of input; null if output is not counted in seconds."""
    expected_output_s_per_input_s: float | None = None
    """What the protocol owes; null if the model may be silent."""
    sessions_started: Natural = 0
    """Sessions that became ready."""
    sessions_rejected: Natural = 0
    """Sessions that the server rejected with a message."""
    sessions_queue_timeout: Natural = 0
    """Sessions without an answer within --ready-timeout."""
    reconnects: Natural = 0
    """Connections that broke off and were made again, where the policy is to do so."""
    end_reasons: dict[str, Natural] = Field(default_factory=dict)
    """Sessions by the reason of their end, those that finished included."""
    end_details: dict[str, str] = Field(default_factory=dict)
    """By end reason, the message of the first session that ended so."""
    unknown_messages: dict[str, Natural] = Field(default_factory=dict)
    """Messages of types that the protocol's description here does not have, by their name."""
    server_errors: dict[str, Natural] = Field(default_factory=dict)
    """Errors that the server reported and that ended no session, by their code."""
    silent_output_share: float | None = None
    """Share of the output that was digital silence, which no model produces; null without sound."""
    scrapes: Natural = 0
    """Answers of the server's metrics."""
    failed_scrapes: Natural = 0
    """Scrapes that failed."""
    preemptions: Natural | None = None
    """Preemptions that the server counted during the point; null: not scraped, or not exported."""
    server_step_ms: float | None = None
    """Mean step of the server's engine, as it reports it; null: not scraped, or not exported."""
