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
from metronome_cli.report.arms import Arm, Trials
from metronome_cli.report.audio import AudioReport
from metronome_cli.report.capacity import Capacity
from metronome_cli.report.forecast import FleetPlan, Forecast, GpuEstimate
from metronome_cli.report.generator import Generator
from metronome_cli.report.measured import ObjectiveResult
from metronome_cli.report.part import Part
from metronome_cli.report.probe import Probe

SCHEMA: Literal["metronome.report/1"] = "metronome.report/1"
UtcTime = Annotated[AwareDatetime, AfterValidator(lambda time: time.astimezone(UTC))]


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
