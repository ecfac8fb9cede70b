"""The report: what a command measured, under which conditions, and what it concludes.

Schema "metronome.report/2". Strict JSON: `null` for no data, never NaN; times in UTC with `Z`; durations in
seconds or milliseconds as named. Reports are data: reading one never executes anything from it. The text
under a field is its documentation; the JSON Schema and docs/report.md are made from it (results/schema.py). A
field may be added under the same schema name; none is renamed, removed or given another meaning.
"""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from metronome_cli.core.errors import Status, Verdict
from metronome_cli.results.audio_files import AudioFiles
from metronome_cli.results.capacity_result import Capacity
from metronome_cli.results.forecast_result import FleetPlan, Forecast, GpuEstimate
from metronome_cli.results.latency_result import ProbeResult
from metronome_cli.results.load_generator import LoadGeneratorStats
from metronome_cli.results.measured import ObjectiveResult
from metronome_cli.results.part import ReportPart
from metronome_cli.results.policy_runs import PolicyRun, RepeatSeries

SCHEMA: Literal["metronome.report/2"] = "metronome.report/2"
UtcTime = Annotated[AwareDatetime, AfterValidator(lambda time: time.astimezone(UTC))]


class Report(ReportPart):
    """One command's report."""

    schema_: Annotated[Literal["metronome.report/2"], Field(alias="schema")] = SCHEMA
    """Name and version of this format."""
    command: str
    """The command that made it."""
    status: Status
    """Ran to its end, was stopped, or failed."""
    verdict: Verdict | None
    """Of the whole command; null where it judges nothing."""
    exit_code: Annotated[int, Field(ge=0, le=255)]
    """Exit code of the process."""
    summary: str = ""
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
    policy_runs: list[PolicyRun] = Field(default_factory=list)
    """Policies under the same controller and load."""
    repeats: list[RepeatSeries] = Field(default_factory=list)
    """Repeated runs under different seeds."""
    forecast: Forecast | None = None
    """The answer of `predict`."""
    probe: ProbeResult | None = None
    """The answer of `probe`."""
    fleet: FleetPlan | None = None
    """The answer of `predict fleet`."""
    gpus: list[GpuEstimate] = Field(default_factory=list)
    """What cards that are not at hand are estimated to hold."""
    load_generator: LoadGeneratorStats = LoadGeneratorStats()
    """The load generator's own lateness."""
    audio: AudioFiles = AudioFiles()
    """What the sessions spoke."""
    backend: dict[str, Any] = Field(default_factory=dict)
    """What ran: device, path through the layers, bytes, stages."""
    error: str | None = None
    """What failed, where `status` is `failed`."""
