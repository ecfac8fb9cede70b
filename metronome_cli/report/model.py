"""The report: what a command measured, under which conditions, and what it concludes. Schema "metronome.report/1".

Strict JSON: `null` for no data, never NaN; times in UTC with `Z`; durations in seconds or milliseconds as named.
Reports are data: reading one never executes anything from it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from metronome_cli.errors import Status, Verdict

SCHEMA = "metronome.report/1"
Binding = Literal["deadline", "memory", "context", "slots", "generator", "encoder", "empty", "objective", "none"]
Ended = Literal["complete", "pool_exhausted", "context_limit", "deadline", "refused", "generator", "interrupted", "engine"]


class Part(BaseModel):
    """Strict part of a report; NaN and infinity are written as null."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="null", protected_namespaces=())


class LatencyMs(Part):
    """Frame latency percentiles in milliseconds; null when no frame was measured."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p999: float | None = None
    max: float | None = None


class ObjectiveResult(Part):
    """One objective, judged."""

    objective: str
    verdict: Verdict
    measured: float | None = None  # in the objective's own unit (ms, fraction, count)
    limit: float
    unit: str
    confidence: float | None = None
    reason: str = ""


class TimelinePoint(Part):
    """One window of one arm: what a dashboard would have shown, and what it would not."""

    t_s: float
    occupancy: float | None = None
    running: int = 0
    waiting: int = 0
    sessions: int = 0
    cap: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    frames: int = 0
    misses: int = 0
    empty_frames: int = 0
    shed: int = 0


class Collapse(Part):
    """The instant at which a run stopped carrying output, and what was seen then."""

    t_s: float
    occupancy: float
    running: int
    waiting: int
    last_output_t_s: float | None = None  # the last frame that carried output
    last_output_frame: int | None = None


class Point(Part):
    """One concurrency, measured on a fresh engine."""

    sessions: int
    verdict: Verdict
    reason: str = ""
    binding: Binding = "none"
    ended_by: Ended = "complete"
    role: str = ""  # "ramp", "screen", "confirm", "next", "memory", "single", "soak"
    policy: str = ""
    frames: int = 0
    steps: int = 0
    misses: int = 0
    missed_steps: int = 0
    worst_streak: int = 0
    lost_beat: int = 0
    empty_frames: int = 0
    duration_s: float = 0.0  # of the run's own clock
    latency_ms: LatencyMs = LatencyMs()
    occupancy_max: float | None = None
    pool_full_t_s: float | None = None  # when a session first found no block, on the run's clock
    stages_ms: dict[str, float] = Field(default_factory=dict)  # mean per step
    ended_sessions: dict[str, int] = Field(default_factory=dict)  # by reason
    preemptions: int = 0
    recomputed_tokens: int = 0
    generator_late_ms_p99: float | None = None
    objectives: list[ObjectiveResult] = Field(default_factory=list)
    collapse: Collapse | None = None
    timeline: list[TimelinePoint] = Field(default_factory=list)


class Capacity(Part):
    """The answer of `metronome capacity`."""

    safe_sessions: int | None = None
    first_failing: int | None = None
    binding: Binding = "none"
    session_length_s: float
    method: str
    step: int = 1  # resolution of the search, in sessions
    confidence: float = 0.99
    binding_stage: str | None = None  # the slowest stage of the step, where the deadline binds
    memory_limit_sessions: int | None = None
    gains: dict[str, float] = Field(default_factory=dict)  # every gain of the controller
    ramp: list[TimelinePoint] = Field(default_factory=list)
    points: list[Point] = Field(default_factory=list)


class Arm(Part):
    """One arm of a policy comparison."""

    name: str
    policy: str
    guard: str | None = None
    settled_sessions: float | None = None
    collapsed: bool
    collapse: Collapse | None = None
    lost_sessions: int = 0
    occupancy_max: float | None = None
    filled_share: float | None = None  # of what would have fitted
    timeline: list[TimelinePoint] = Field(default_factory=list)


class Trials(Part):
    """The same run again and again under different seeds: how often it collapsed, beside what was predicted."""

    policy: str
    sessions: int
    session_length_s: float
    trials: int
    collapsed: int
    share_low: float | None = None  # 90 % binomial interval of the share that collapsed
    share_high: float | None = None
    predicted_probability: float | None = None
    collapse_t_s: list[float | None] = Field(default_factory=list)  # one a trial; null: it did not collapse


class Generator(Part):
    """The load generator's own lateness."""

    late_ms_p99: float | None = None
    healthy: bool | None = None


class AudioFile(Part):
    file: str
    seconds: float | None = None
    notes: list[str] = Field(default_factory=list)


class AudioRefusal(Part):
    file: str
    reason: str


class AudioReport(Part):
    files_used: list[AudioFile] = Field(default_factory=list)
    files_refused: list[AudioRefusal] = Field(default_factory=list)


class Interval(Part):
    estimate: float | None
    low: float | None
    high: float | None


class Forecast(Part):
    """The answer of `metronome predict`. `t_sat_s` null: does not saturate."""

    t_sat_s: Interval
    collapse_probability: float | None
    binding: str
    max_sessions: int | None
    safe_window: int | None
    assumptions: list[str] = Field(default_factory=list)
    details: dict[str, Any] = Field(default_factory=dict)


class Report(Part):
    """One command's report."""

    schema_: Annotated[Literal["metronome.report/1"], Field(alias="schema")] = SCHEMA
    command: str
    status: Status
    verdict: Verdict | None
    exit_code: int
    answer: str = ""  # one sentence, as printed
    clock: Literal["real", "virtual"] | None = None
    started_at: datetime
    duration_s: float
    argv: list[str]
    version: str
    seed: int | None = None
    profile: dict[str, Any] | None = None
    environment: dict[str, Any] = Field(default_factory=dict)
    weights: str | None = None  # "random" or where they came from
    settings: dict[str, Any] = Field(default_factory=dict)
    objectives: list[ObjectiveResult] = Field(default_factory=list)
    capacity: Capacity | None = None
    arms: list[Arm] = Field(default_factory=list)
    trials: list[Trials] = Field(default_factory=list)
    forecast: Forecast | None = None
    probe: dict[str, Any] | None = None
    fleet: dict[str, Any] | None = None
    generator: Generator = Generator()
    audio: AudioReport = AudioReport()
    engine: dict[str, Any] = Field(default_factory=dict)
    error: str | None = None

    model_config = ConfigDict(
        extra="forbid", ser_json_inf_nan="null", populate_by_name=True, protected_namespaces=()
    )
