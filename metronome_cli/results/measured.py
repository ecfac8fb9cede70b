"""Parts that all measurements share: windows in time, latency, judged objectives, the collapse."""

from __future__ import annotations

from pydantic import Field

from metronome_cli.core.errors import Verdict
from metronome_cli.results.part import Natural, ReportPart


class LatencyMs(ReportPart):
    """Frame latency percentiles in milliseconds; null when no frame was measured."""

    p50: float | None = None
    """Median."""
    p90: float | None = None
    """90th percentile."""
    p99: float | None = None
    """99th percentile."""
    p999: float | None = None
    """99.9th percentile."""
    max: float | None = None
    """The latest frame."""


class ObjectiveResult(ReportPart):
    """One objective, judged."""

    objective: str
    """As given, such as `p99<80ms`."""
    verdict: Verdict
    """Held, broken, or not settled by the evidence."""
    measured: float | None = None
    """In `unit`; null when nothing was measured."""
    limit: float
    """In `unit`."""
    unit: str
    """`ms`, `fraction`, `count` or as the objective names it."""
    confidence: float | None = None
    """Confidence at which the verdict stands, 0 to 1."""
    reason: str = ""
    """The reason, as text."""


class Window(ReportPart):
    """One window of a run: latency, misses, empty frames and pool occupancy."""

    t_s: float
    """End of the window, in seconds of the run's own clock."""
    occupancy: float | None = None
    """Used blocks of the KV pool / all blocks, 0 to 1: at the window's end, or a new highest of the run within it."""
    stage_occupancy: dict[str, float] = Field(default_factory=dict)
    """The same of further stages' pools, such as a talker's, by stage."""
    running: Natural = 0
    """Sessions that hold blocks and are served."""
    waiting: Natural = 0
    """Sessions that wait for a free block."""
    sessions: Natural = 0
    """Open sessions."""
    session_limit: float | None = None
    """Sessions that the controller admits."""
    p50_ms: float | None = None
    """Median frame latency in the window."""
    p99_ms: float | None = None
    """99th percentile of frame latency in the window."""
    max_ms: float | None = None
    """Latest frame in the window."""
    frames: Natural = 0
    """Frames answered in the window."""
    misses: Natural = 0
    """Frames of the window that came after the deadline."""
    empty_frames: Natural = 0
    """Frames of the window that were due an answer and carried none."""
    shed: Natural = 0
    """Sessions shed since the start."""
    warm_up: bool = False
    """Whether the window was left out of every count and percentile of its run: an engine's first steps."""


class OccupancySeries(ReportPart):
    """Occupancy of a trial's KV pool in time, fine enough to forecast from."""

    t_s: list[float]
    """Times on the trial clock, ascending."""
    occupancy: list[float]
    """Used blocks / all blocks at these times, 0 to 1."""


class Collapse(ReportPart):
    """Time at which a run stopped producing output, and its state then."""

    t_s: float
    """When, in seconds of the run's own clock."""
    occupancy: float
    """Of the KV pool at that time, 0 to 1."""
    running: Natural
    """Sessions that were still served."""
    waiting: Natural
    """Sessions that waited for a block."""
    last_output_s: float | None = None
    """When the last frame that carried output was answered."""
    last_output_period: Natural | None = None
    """Its number, counted in periods from the start."""
