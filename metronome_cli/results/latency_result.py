"""The part of a report that `metronome probe` fills."""

from __future__ import annotations

from pydantic import Field

from metronome_cli.results.part import ReportPart
from metronome_cli.results.quality_result import QualityResult


class GridCellResult(ReportPart):
    """One cell of the grid."""

    policy: str
    """What stayed resident."""
    sessions: int
    """Frames in the batch."""
    age_s: float
    """Age of every session in it."""
    resident_tokens: int
    """Cache tokens that each session held."""
    steps: int
    """Timed steps."""
    median_ms: float | None = None
    """Median time of a step; null when it was not measured."""
    median_relative_error: float | None = None
    """Relative standard error of the median."""
    stages_ms: dict[str, float] = Field(default_factory=dict)
    """Mean time of each stage in a step."""
    skipped: str | None = None
    """Why it was not measured."""


class DeadlineLimit(ReportPart):
    """How many sessions of one age the deadline allows, by the fit."""

    age_s: float
    """Age of every session."""
    sessions: int | None
    """Largest N whose step fits the deadline."""
    extrapolated: bool
    """Beyond the largest batch that was measured."""


class PolicyCost(ReportPart):
    """Measurements of one policy."""

    policy: str
    """What stayed resident."""
    fixed_ms: float | None = None
    """a of T = a + b N + c N r: cost of a step without sessions."""
    per_session_ms: float | None = None
    """b: what each session adds."""
    per_1000_tokens_ms: float | None = None
    """c: what a thousand resident tokens of one session add."""
    fit_relative_rmse: float | None = None
    """Relative root-mean-square error of the fit."""
    age_ratio: float | None = None
    """Step time at the oldest age over that at the youngest, at the largest batch, of steps that took turns."""
    age_ratio_low: float | None = None
    """Lower end of that ratio, at 95 % one-sided."""
    age_ratio_high: float | None = None
    """Upper end."""
    age_independent: bool | None = None
    """Whether the step's time does not grow with the session's age; null when not seen, or when steps varied too
    much to tell."""
    deadline_limits: list[DeadlineLimit] = Field(default_factory=list)
    """By age."""


class DevicePeaksResult(ReportPart):
    """What the device reached in the same run, and how near a step at batch 1 came to it."""

    bytes_per_s: float
    """Memory bandwidth: the faster of gemv and a sum on a matrix larger than the caches."""
    flops_per_s: float
    """Compute: gemm."""
    weight_bytes: int
    """Weights that one pass through the decoder reads."""
    weight_read_floor_ms: float
    """Least time of a decode pass at batch 1."""
    share_of_bandwidth: float | None = None
    """The decode stage's share of the bandwidth limit at batch 1."""
    share_of_compute: float | None = None
    """The prefill stage's share of the compute limit at the largest batch."""


class ProbeResult(ReportPart):
    """The answer of `metronome probe`."""

    kind: str
    """`latency` or `quality`."""
    cells: list[GridCellResult] = Field(default_factory=list)
    """The grid of `latency`."""
    policies: list[PolicyCost] = Field(default_factory=list)
    """The cost of a step under each policy."""
    device_peaks: DevicePeaksResult | None = None
    """The device's limits."""
    time_breakdown: list[str] = Field(default_factory=list)
    """What would move the cost, most first."""
    quality: QualityResult | None = None
    """The answer of `probe quality`."""
