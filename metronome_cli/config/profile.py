"""A profile: one model as a periodic load, all that `capacity`, `probe` and `predict` need to know of it.

YAML on disk, validated here; unknown keys are refused with the nearest known one named (config/profile_files.py).
Quantities carry units ("80ms", "168MiB"). Sizes are bytes, times seconds, after parsing. A profile that was
dumped as plain numbers, as in a report, is read back with `Profile.from_numbers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from metronome_cli.config.cache_groups import CacheGroup
from metronome_cli.config.cache_policy import CachePolicySpec, OnPoolFull, SinkPositions
from metronome_cli.config.fields import (
    PLAIN_NUMBERS,
    Count,
    Duration,
    ObjectiveText,
    PolicyText,
    Prose,
    StrictModel,
    Tokens,
)
from metronome_cli.config.frame import Frame, FrameTokens, TurnTaking
from metronome_cli.config.model_shape import CacheStage, KvPoolSpec, ModelShape
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import format_duration


class FigureSource(StrictModel):
    """Where a figure was read, and how sure it is: A authors' own, B an independent port, C second hand."""

    what: Prose
    where: Prose
    grade: Literal["A", "B", "C", "D", "M"] = "A"


class Profile(StrictModel):
    """One model as a periodic load. See `docs/profiles.md` for each key."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)]
    title: Prose
    description: Prose = ""
    adapter: Prose | None = None  # the class of models/ that runs it; None: for `predict` only
    adapter_options: dict[Prose, int | float | Prose | bool] = Field(default_factory=dict)
    frame: Frame
    tokens: FrameTokens
    turn_taking: TurnTaking = TurnTaking()
    shape: ModelShape
    kv_pool: KvPoolSpec | None = None  # None: sized from the memory the user names
    policy: PolicyText
    sink_positions: SinkPositions = "rolling"
    on_pool_full: OnPoolFull = "stall"
    max_batch_size: Count = 256
    session_length: Duration = 600.0
    prompt_tokens: Tokens = 0  # prompt positions a session starts with
    stages: tuple[CacheStage, ...] = ()
    objectives: tuple[ObjectiveText, ...] = ()
    clock: Literal["real", "virtual"] | None = None
    verified: bool = True
    unverified: tuple[Prose, ...] = ()  # figures that are not verified, named
    sources: tuple[FigureSource, ...] = ()
    notes: tuple[Prose, ...] = ()

    @classmethod
    def from_numbers(cls, data: Mapping[str, Any]) -> Profile:
        """A profile from `model_dump(mode="json")`, where seconds and bytes are plain numbers."""
        return cls.model_validate(data, context=PLAIN_NUMBERS)

    @property
    def policy_spec(self) -> CachePolicySpec:
        return CachePolicySpec.parse(self.policy)

    @property
    def cache_groups(self) -> tuple[CacheGroup, ...]:
        """What one session keeps: the decoder's groups under the policy, and those of further stages."""
        spec = self.policy_spec
        groups = list(self.shape.cache_groups)
        if spec.kind != "unbounded" and not self.shape.cache:
            law = "ring" if spec.kind == "ring" else "windowed"
            limit = 2 * spec.window if spec.kind == "recycle" else spec.window + spec.sinks
            groups = [group.model_copy(update={"law": law, "limit": limit}) for group in groups]
        further = (stage.cache_group for stage in self.stages)
        return (*groups, *(group for group in further if group is not None))

    @property
    def mean_tokens_per_frame(self) -> float:
        """Cache positions a frame, averaged over listening and speaking."""
        share = self.turn_taking.speaking_share
        return share * self.tokens.per_frame(True) + (1 - share) * self.tokens.per_frame(False)

    def positions_at(self, age_s: float) -> int:
        """Cache positions that a session of that age has seen, at its mean rate."""
        return round(self.prompt_tokens + age_s / self.frame.period_s * self.mean_tokens_per_frame)

    def check_length(self, session_length_s: float) -> None:
        """Raises UsageError for a session that ends before its first frame."""
        period_s = self.frame.period_s
        if session_length_s < period_s:
            raise UsageError(
                f"a session of {format_duration(session_length_s)} ends before its first frame, which lasts "
                f"{format_duration(period_s)}",
                hint="a longer --session-length, such as 10m",
            )

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        spec, context = self.policy_spec, self.shape.context_length
        if context is not None and spec.kind != "ring" and spec.window + spec.sinks > context:
            raise ValueError(f"policy {spec} is wider than shape.context_length, {context} positions")
        if self.adapter is not None and self.shape.head_dim % 2:
            raise ValueError(f"shape.head_dim is {self.shape.head_dim}; rotary positions need an even number")
        if self.adapter is not None:
            lacking = [
                key
                for key in ("intermediate_size", "vocab_size", "context_length")
                if getattr(self.shape, key) is None
            ]
            if lacking:
                raise ValueError(
                    f"shape.{lacking[0]} is needed to run the model; leave out adapter to plan only"
                )
            if self.shape.cache:
                raise ValueError("shape.cache is for planning; adapters keep every position in every layer")
        if context is not None and self.prompt_tokens >= context:
            raise ValueError(
                f"prompt_tokens is {self.prompt_tokens}; it must be below shape.context_length, {context}"
            )
        if self.verified == bool(self.unverified):
            raise ValueError("`verified: false` and `unverified`, the figures in doubt, need each other")
        beside = self.shape.constant_bytes
        if self.kv_pool is not None and self.kv_pool.block_count(self.shape.kv_bytes_per_token, beside) < 1:
            raise ValueError("pool.bytes is less than one block")
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names):
            raise ValueError("two stages have the same name")
        return self
