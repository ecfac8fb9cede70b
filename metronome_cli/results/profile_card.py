"""What a profile means in memory and time, as `profiles show --json` prints it."""

from __future__ import annotations

from pydantic import Field

from metronome_cli.results.part import ReportPart


class RatesByState(ReportPart):
    """A figure while the model listens, while it speaks, and on average; null: without end."""

    listening: float | None
    speaking: float | None
    mean: float | None


class StageCard(ReportPart):
    """One further stage."""

    name: str
    kind: str
    kv_bytes_per_position: int
    growth_bytes_per_s: RatesByState
    limit: int | None
    seconds_to_limit: RatesByState
    resets: str
    bytes_at_most: int | None
    verified: bool


class MemoryRow(ReportPart):
    """One line of the way from a device's memory to the pool."""

    what: str
    bytes: int
    how: str


class MemoryFit(ReportPart):
    """How many sessions fit. `memory_bytes` null: the profile's own pool; `sessions` null: any number."""

    memory_bytes: int | None
    memory_share: float | None
    sessions: int | None
    binding: str  # what stops one session more
    confidence: float
    session_length_s: float
    memory: list[MemoryRow] = Field(default_factory=list)


class ProfileCard(ReportPart):
    """All of it. Bytes, seconds, positions."""

    name: str
    title: str
    adapter: str | None
    verified: bool
    unverified: list[str]
    policy: str
    kv_bytes_per_token: int
    positions_per_s: RatesByState
    growth_bytes_per_s: RatesByState
    context: int | None
    cache: str
    seconds_to_context: RatesByState
    cache_bytes_per_session: int
    state_bytes_per_session: int
    weight_bytes: int | None
    stages: list[StageCard]
    fit: MemoryFit | None
