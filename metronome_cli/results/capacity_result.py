"""The part of a report that `metronome capacity` fills: every point that was measured, and what they add up to."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from metronome_cli.core.errors import Verdict
from metronome_cli.results.capacity_estimate import CapacityEstimate
from metronome_cli.results.cycles_result import Cycles
from metronome_cli.results.listener_result import Beats, Canary, Context, Misbehaved, Playback, Rtf, Turns
from metronome_cli.results.measured import Collapse, LatencyMs, ObjectiveResult, OccupancySeries, Window
from metronome_cli.results.network_stats import NetworkStats
from metronome_cli.results.part import Natural, ReportPart

LimitingFactor = Literal[
    "deadline", "memory", "context_length", "slots", "load_generator", "empty_frames", "none"
]
TrialEnd = Literal[
    "completed",
    "pool_full",
    "context_limit",
    "objective_failed",
    "rejected",
    "load_generator",
    "interrupted",
    "backend_error",
]


class TrialResult(ReportPart):
    """One number of sessions, measured on a fresh engine."""

    sessions: Natural
    """How many sessions."""
    verdict: Verdict
    """Of all objectives together."""
    reason: str = ""
    """Why, in words."""
    limited_by: LimitingFactor = "none"
    """What broke first where the verdict is not pass."""
    ended_by: TrialEnd = "completed"
    """What ended the measurement."""
    purpose: str = ""
    """What the point was for: `ramp`, `screen`, `confirm`, `next`, `memory`, `single`, `soak`, `trial`."""
    policy: str = ""
    """What of a session's cache stayed."""
    frames: Natural = 0
    """Frames answered."""
    batches: Natural = 0
    """Engine steps; the frames of one batch share a step."""
    misses: Natural = 0
    """Frames that came after the deadline."""
    late_batches: Natural = 0
    """Steps with at least one such frame; these count for confidence."""
    miss_streak: Natural = 0
    """Most misses in a row of one session."""
    sessions_fell_behind: Natural = 0
    """Sessions whose backlog passed its limit."""
    empty_frames: Natural = 0
    """Frames that were due an answer and carried none."""
    duration_s: float = 0.0
    """Of the run's own clock."""
    latency_ms: LatencyMs = LatencyMs()
    """Answer available minus due time, over all frames."""
    occupancy_max: float | None = None
    """Highest occupancy of the KV pool, 0 to 1."""
    pool_full_at_s: float | None = None
    """When a session first found no block, on the run's clock; null: never."""
    stages_ms: dict[str, float] = Field(default_factory=dict)
    """Mean time of each stage of a step."""
    sessions_ended_early: dict[str, Natural] = Field(default_factory=dict)
    """Sessions that ended before their time, by reason."""
    preemptions: Natural = 0
    """Sessions that gave up their blocks to others."""
    recomputed_tokens: Natural = 0
    """Positions that were computed again, after preemption or recycling."""
    load_generator_lateness_ms_p99: float | None = None
    """99th percentile of the load generator's own lateness."""
    objectives: list[ObjectiveResult] = Field(default_factory=list)
    """Each objective at this point."""
    collapse: Collapse | None = None
    """Where the run stopped carrying output; null: it did not."""
    windows: list[Window] = Field(default_factory=list)
    """The point's windows in order."""
    occupancy: OccupancySeries | None = None
    """Occupancy of the pool, a point per frame period or second if that is shorter, thinned if long; null: not seen."""
    windows_merged: Natural = 1
    """Windows that each entry of a long timeline stands for: peaks are the highest, counts are sums."""
    playback: Playback | None = None
    """What listeners heard; null: no sound came."""
    turns: Turns | None = None
    """Turns of the users; null: none were planned, and no answer ended."""
    beats: Beats | None = None
    """Answers while the model listens; null: the server sends none."""
    context: Context | None = None
    """Caches of single sessions; null: the server does not report them."""
    misbehaved: list[Misbehaved] = Field(default_factory=list)
    """Sessions that misbehaved on purpose, by what they did; they are not judged."""
    canary: Canary | None = None
    """One session against itself alone on the server; null: `--canary` was off, or its turns were not answered."""
    rtf: Rtf | None = None
    """Speed of answers; null: none of more than one chunk ended."""
    network: NetworkStats | None = None
    """What only sockets tell; null where the engine ran in this process."""


class DelayCapacity(ReportPart):
    """The answer under one playback delay, of the trials that were run."""

    delay_ms: float
    """The playback delay."""
    safe_sessions: Natural | None = None
    """Largest number of sessions that held every objective; null: none did."""
    first_failing: Natural | None = None
    """Smallest number of sessions that failed; null: none did."""


class Capacity(ReportPart):
    """The answer of `metronome capacity`."""

    safe_sessions: Natural | None = None
    """Largest number of sessions confirmed to hold every objective; null: none was."""
    lowest_failing_sessions: Natural | None = None
    """Smallest number of sessions seen to fail; null: none was."""
    estimate: CapacityEstimate | None = None
    """How many sessions hold by all trials together, with an interval; null: no trial, or no objective on latency."""
    limited_by: LimitingFactor = "none"
    """What stops the next step."""
    session_length_s: float
    """How long each session has to hold."""
    inconclusive_reason: str | None = None
    """Why there is no safe number, or none that fails; null: there are both, or the points say it themselves."""
    method: str
    """`ramp`, `bisect`, `single` where one number was judged, or `replay` of several recorded ones."""
    resolution_sessions: Natural = 1
    """Resolution of the search, in sessions."""
    confidence: float = 0.99
    """Confidence of each verdict."""
    slowest_stage: str | None = None
    """Slowest stage of the step, if the deadline limits."""
    memory_ceiling_sessions: Natural | None = None
    """The search looked no higher: with one session more the caches would not fit the pool even between frames. A frame
    takes more while it is served, so fewer sessions may hold; null: not known.
    """
    controller: dict[str, float] = Field(default_factory=dict)
    """Every gain of the controller."""
    ramp_windows: list[Window] = Field(default_factory=list)
    """The controller's windows while it looked for the range."""
    by_delay: list[DelayCapacity] = Field(default_factory=list)
    """The answer at each playback delay, if several were asked for."""
    cycles: Cycles | None = None
    """Whether capacity comes back after sessions have left; null: not asked for."""
    trials: list[TrialResult] = Field(default_factory=list)
    """Every point in the order in which it was measured."""
