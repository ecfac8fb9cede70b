"""The report: what a command measured, under which conditions, and what it concludes.

Schema "metronome.report/1". Strict JSON: `null` for no data, never NaN; times in UTC with `Z`; durations in
seconds or milliseconds as named. Reports are data: reading one never executes anything from it. The text
under a field is its documentation; the JSON Schema and docs/report.md are made from it (report/schema.py). A
field may be added under the same schema name; none is renamed, removed or given another meaning.
"""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from metronome_cli.errors import Status, Verdict
from metronome_cli.report.forecast import (
    FleetPlan,
    FleetSize,
    Forecast,
    GpuEstimate,
    HazardForecast,
    Implied,
    Interval,
    MemoryLine,
)
from metronome_cli.report.part import Natural, Part
from metronome_cli.report.probe import Probe
from metronome_cli.report.wire import Spread, Wire

__all__ = [
    "SCHEMA",
    "Arm",
    "AudioFile",
    "AudioRefusal",
    "AudioReport",
    "Binding",
    "Capacity",
    "Collapse",
    "Ended",
    "FleetPlan",
    "FleetSize",
    "Forecast",
    "Generator",
    "GpuEstimate",
    "HazardForecast",
    "Implied",
    "Interval",
    "LatencyMs",
    "MemoryLine",
    "Natural",
    "ObjectiveResult",
    "Part",
    "Point",
    "Probe",
    "Report",
    "Spread",
    "TimelinePoint",
    "Trials",
    "Wire",
]  # fmt: skip

SCHEMA: Literal["metronome.report/1"] = "metronome.report/1"
Binding = Literal[
    "deadline", "memory", "context", "slots", "generator", "encoder", "empty", "objective", "none"
]
Ended = Literal[
    "complete", "pool_exhausted", "context_limit", "deadline", "refused", "generator", "interrupted", "engine"
]
UtcTime = Annotated[AwareDatetime, AfterValidator(lambda time: time.astimezone(UTC))]


class LatencyMs(Part):
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


class ObjectiveResult(Part):
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
    """Why, in words."""


class TimelinePoint(Part):
    """One window of one run: what a dashboard would have shown, and what it would not."""

    t_s: float
    """End of the window, in seconds of the run's own clock."""
    occupancy: float | None = None
    """Used blocks of the KV pool / all blocks, 0 to 1."""
    stage_occupancy: dict[str, float] = Field(default_factory=dict)
    """The same of further stages' pools, such as a talker's, by stage."""
    running: Natural = 0
    """Sessions that hold blocks and move."""
    waiting: Natural = 0
    """Sessions that are stuck for want of a block."""
    sessions: Natural = 0
    """Sessions seated."""
    cap: float | None = None
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
    """Sessions turned away or sent away, from the start."""


class Collapse(Part):
    """The instant at which a run stopped carrying output, and what was seen then."""

    t_s: float
    """When, in seconds of the run's own clock."""
    occupancy: float
    """Of the KV pool at that time, 0 to 1."""
    running: Natural
    """Sessions that still moved."""
    waiting: Natural
    """Sessions that waited for a block."""
    last_output_t_s: float | None = None
    """When the last frame that carried output was answered."""
    last_output_frame: Natural | None = None
    """Its number, counted in periods from the start."""


class Point(Part):
    """One number of sessions, measured on a fresh engine."""

    sessions: Natural
    """How many sessions."""
    verdict: Verdict
    """Of all objectives together."""
    reason: str = ""
    """Why, in words."""
    binding: Binding = "none"
    """What broke first where the verdict is not pass."""
    ended_by: Ended = "complete"
    """What ended the measurement."""
    role: str = ""
    """What the point was for: `ramp`, `screen`, `confirm`, `next`, `memory`, `single`, `soak`, `trial`."""
    policy: str = ""
    """What of a session's cache stayed."""
    frames: Natural = 0
    """Frames answered."""
    steps: Natural = 0
    """Engine steps; the frames of one batch share a step."""
    misses: Natural = 0
    """Frames that came after the deadline."""
    missed_steps: Natural = 0
    """Steps with at least one such frame; these count for confidence."""
    worst_streak: Natural = 0
    """Most misses in a row of one session."""
    lost_beat: Natural = 0
    """Sessions whose backlog passed its limit."""
    empty_frames: Natural = 0
    """Frames that were due an answer and carried none."""
    duration_s: float = 0.0
    """Of the run's own clock."""
    latency_ms: LatencyMs = LatencyMs()
    """Answer available minus due time, over all frames."""
    occupancy_max: float | None = None
    """Highest occupancy of the KV pool, 0 to 1."""
    pool_full_t_s: float | None = None
    """When a session first found no block, on the run's clock; null: never."""
    stages_ms: dict[str, float] = Field(default_factory=dict)
    """Mean time of each stage of a step."""
    ended_sessions: dict[str, Natural] = Field(default_factory=dict)
    """Sessions that ended before their time, by reason."""
    preemptions: Natural = 0
    """Sessions that gave up their blocks to others."""
    recomputed_tokens: Natural = 0
    """Positions that were computed again, after preemption or recycling."""
    generator_late_ms_p99: float | None = None
    """99th percentile of the load generator's own lateness."""
    objectives: list[ObjectiveResult] = Field(default_factory=list)
    """Each objective at this point."""
    collapse: Collapse | None = None
    """Where the run stopped carrying output; null: it did not."""
    timeline: list[TimelinePoint] = Field(default_factory=list)
    """The point's windows in order."""
    windows_each: Natural = 1
    """Windows that each entry of a long timeline stands for: peaks are the highest, counts are sums."""
    wire: Wire | None = None
    """What only sockets tell; null where the engine ran in this process."""


class Capacity(Part):
    """The answer of `metronome capacity`."""

    safe_sessions: Natural | None = None
    """Largest number of sessions confirmed to hold every objective; null: none was."""
    first_failing: Natural | None = None
    """Smallest number of sessions seen to fail; null: none was."""
    binding: Binding = "none"
    """What stops the next step."""
    session_length_s: float
    """How long each session has to hold."""
    method: str
    """`ramp`, `bisect`, `single` where one number was judged, or `replay` of several recorded ones."""
    step: Natural = 1
    """Resolution of the search, in sessions."""
    confidence: float = 0.99
    """Confidence of each verdict."""
    binding_stage: str | None = None
    """Slowest stage of the step, where the deadline binds."""
    memory_limit_sessions: Natural | None = None
    """Sessions whose caches fit the pool at the session length, by arithmetic; null: not known."""
    gains: dict[str, float] = Field(default_factory=dict)
    """Every gain of the controller."""
    ramp: list[TimelinePoint] = Field(default_factory=list)
    """The controller's windows while it looked for the range."""
    points: list[Point] = Field(default_factory=list)
    """Every point in the order in which it was measured."""


class Arm(Part):
    """One arm of a policy comparison."""

    name: str
    """What it is called in the report."""
    policy: str
    """What of a session's cache stayed."""
    guard: str | None = None
    """What stood at the door beside the controller: `memory`, or null."""
    settled_sessions: float | None = None
    """Mean number of sessions in the middle third of the run."""
    collapsed: bool
    """Whether the run stopped carrying output."""
    collapse: Collapse | None = None
    """Where it did."""
    lost_sessions: Natural = 0
    """Sessions that were admitted and did not live to their end in health."""
    occupancy_max: float | None = None
    """Highest occupancy of the KV pool, 0 to 1."""
    objectives: list[ObjectiveResult] = Field(default_factory=list)
    """Every objective, judged over the whole arm."""
    filled_share: float | None = None
    """Sessions held, of those that would have fitted, 0 to 1."""
    generator_late: str | None = None
    """Why its times say nothing of the engine; null: the load generator was on time."""
    timeline: list[TimelinePoint] = Field(default_factory=list)
    """The arm's windows in order."""
    windows_each: Natural = 1
    """Windows that each entry of a long timeline stands for: peaks are the highest, counts are sums."""


class Trials(Part):
    """The same run again under different seeds: how often it collapsed, beside what was predicted."""

    policy: str
    """What of a session's cache stayed."""
    sessions: Natural
    """Sessions in each trial."""
    session_length_s: float
    """Length of each trial, on the run's clock."""
    trials: Natural
    """Trials done."""
    collapsed: Natural
    """Trials in which the pool was full before the end."""
    share_low: float | None = None
    """Lower end of the 90 % binomial interval of the share that collapsed."""
    share_high: float | None = None
    """Upper end of it."""
    predicted_probability: float | None = None
    """Probability of a collapse by the forecast."""
    collapse_t_s: list[float | None] = Field(default_factory=list)
    """When each trial found the pool full; null: it did not."""


class Generator(Part):
    """How the load generator fared itself, at the worst point."""

    late_ms_p99: float | None = None
    """99th percentile over the steps, of how late the latest frame of each was begun."""
    pacing_ms_p999: float | None = None
    """99.9th percentile over the frames sent to a server, of how late each went out; null: no server was driven."""
    late_share: float | None = None
    """Share of those frames that went out more than 5 ms late."""
    cpu_share: float | None = None
    """Processor time of the busiest process with callers, as a share of one core."""
    workers: Natural = 0
    """Processes with callers in them, beside the one that counts."""
    healthy: bool | None = None
    """False where it was too late for a verdict; null: not measured."""


class AudioFile(Part):
    """An audio file that was used."""

    file: str
    """Its name, without the directory."""
    seconds: float | None = None
    """Length of what was decoded."""
    notes: list[str] = Field(default_factory=list)
    """What is odd about it."""


class AudioRefusal(Part):
    """An audio file that was left out."""

    file: str
    """Its name, without the directory."""
    reason: str
    """Why."""


class AudioReport(Part):
    """What the sessions spoke."""

    files_used: list[AudioFile] = Field(default_factory=list)
    """Files that were used."""
    files_refused: list[AudioRefusal] = Field(default_factory=list)
    """Files that were left out."""


class Report(Part):
    """One command's report."""

    schema_: Annotated[Literal["metronome.report/1"], Field(alias="schema")] = SCHEMA
    """Name and version of this format."""
    command: str
    """The command that made it."""
    status: Status
    """Ran to its end, was stopped, or failed."""
    verdict: Verdict | None
    """Of the whole command; null where it judges nothing."""
    exit_code: Annotated[int, Field(ge=0, le=255)]
    """Exit code of the process."""
    answer: str = ""
    """The answer in one sentence, as printed."""
    clock: Literal["real", "virtual"] | None = None
    """Which clock was used."""
    started_at: UtcTime
    """When the command began, in UTC."""
    duration_s: float
    """Wall time that it took."""
    argv: list[str]
    """The command line."""
    version: str
    """Version of metronome."""
    seed: int | None = None
    """Seed of load and weights."""
    profile: dict[str, Any] | None = None
    """The profile as it was used, every override applied; sizes in bytes, times in seconds."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """Machine and versions."""
    weights: str | None = None
    """`random`, or where the weights came from."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Every setting of the run that is not part of the profile."""
    objectives: list[ObjectiveResult] = Field(default_factory=list)
    """Each objective where the answer rests."""
    capacity: Capacity | None = None
    """The answer of `capacity`."""
    arms: list[Arm] = Field(default_factory=list)
    """Policies under the same controller and load."""
    trials: list[Trials] = Field(default_factory=list)
    """Repeated runs under different seeds."""
    forecast: Forecast | None = None
    """The answer of `predict`."""
    probe: Probe | None = None
    """The answer of `probe`."""
    fleet: FleetPlan | None = None
    """The answer of `predict --fleet`."""
    gpus: list[GpuEstimate] = Field(default_factory=list)
    """What cards that are not at hand are estimated to hold."""
    generator: Generator = Generator()
    """The load generator's own lateness."""
    audio: AudioReport = AudioReport()
    """What the sessions spoke."""
    engine: dict[str, Any] = Field(default_factory=dict)
    """What ran: device, path through the layers, bytes, stages."""
    error: str | None = None
    """What failed, where `status` is `failed`."""
