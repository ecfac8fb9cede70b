"""The parts of a report that hold several runs: policies compared, and repeats under other seeds."""

from __future__ import annotations

from pydantic import Field

from metronome_cli.results.measured import Collapse, ObjectiveResult, Window
from metronome_cli.results.part import Natural, ReportPart


class PolicyRun(ReportPart):
    """One policy of a comparison."""

    name: str
    """What it is called in the report."""
    policy: str
    """What of a session's cache stayed."""
    admission_control: str | None = None
    """Admission control beside the controller: `memory`, or null."""
    mean_sessions_mid_run: float | None = None
    """Mean number of sessions in the middle third of the run."""
    collapsed: bool
    """Whether the run stopped carrying output."""
    collapse: Collapse | None = None
    """Where it did."""
    sessions_lost: Natural = 0
    """Sessions that were admitted and did not live to their end in health."""
    occupancy_max: float | None = None
    """Highest occupancy of the KV pool, 0 to 1."""
    objectives: list[ObjectiveResult] = Field(default_factory=list)
    """Every objective, judged over the whole run."""
    filled_share: float | None = None
    """Sessions held, of those that would have fitted, 0 to 1."""
    load_generator_late: str | None = None
    """Why latencies are not those of the engine; null: the load generator was on time."""
    no_admission_reason: str = ""
    """Why no session was admitted; empty if one was."""
    windows: list[Window] = Field(default_factory=list)
    """Windows in order."""
    windows_merged: Natural = 1
    """Windows that each entry of a long timeline stands for: peaks are the highest, counts are sums."""


class RepeatSeries(ReportPart):
    """The same run again under different seeds: how often it collapsed, beside what was predicted."""

    policy: str
    """What of a session's cache stayed."""
    sessions: Natural
    """Sessions in each trial."""
    session_length_s: float
    """Length of each trial, on the run's clock."""
    repeats: Natural
    """Trials done."""
    collapsed: Natural
    """Trials in which the pool was full before the end."""
    collapsed_share_low: float | None = None
    """Lower end of the 90 % binomial interval of the share that collapsed."""
    collapsed_share_high: float | None = None
    """Upper end of it."""
    forecast_probability: float | None = None
    """Probability of a collapse by the forecast."""
    pool_full_at_s: list[float | None] = Field(default_factory=list)
    """When each trial found the pool full; null: it did not."""
