"""What a model takes of memory: its decoder's shape, the KV pool, and further stages beside it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from metronome_cli.config.cache_groups import (
    DTYPE_BYTES,
    CacheGroup,
    Dtype,
    bytes_beside_pool,
    growing_bytes_per_token,
)
from metronome_cli.config.fields import (
    PLAIN_NUMBERS,
    Count,
    Parameters,
    Prose,
    Real,
    Size,
    StrictModel,
    Tokens,
)
from metronome_cli.core.errors import UsageError

StageKind = Literal["paged", "ring", "per_frame", "state"]


class ModelShape(StrictModel):
    """A decoder's shape as it concerns load and memory."""

    layers: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    hidden_size: Count
    intermediate_size: Count | None = None  # null: not known, for planning only
    vocab_size: Count | None = None
    dtype: Dtype = "bfloat16"
    kv_dtype: Dtype | None = None  # the cache's, where it differs
    context_length: Count | None = None
    served_context_length: Count | None = None  # what its authors' own server allows, where that is less
    rope_theta: Annotated[Real, Field(gt=0)] | None = 10_000.0  # null: not known, or no rotary positions
    parameters: Parameters | None = None  # read at a step, where layers alone do not say (experts, towers)
    active_parameters: Parameters | None = None  # used by one token, where that is fewer (experts)
    weight_bytes: Size | None = None  # resident weights, where dtype x parameters does not say
    cache: tuple[CacheGroup, ...] = ()  # where not every layer keeps K and V of every position

    @property
    def cache_groups(self) -> tuple[CacheGroup, ...]:
        """As given, else one group: K and V of every position in every layer."""
        if self.cache:
            return self.cache
        width = self.kv_heads * self.head_dim
        return (
            CacheGroup(
                name="full attention",
                law="growing",
                layers=self.layers,
                key_width=width,
                value_width=width,
                dtype=self.kv_dtype or self.dtype,
            ),
        )

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one new position adds; 0 if all layers keep a constant state."""
        if not self.cache:  # the common case, asked often
            return 2 * self.layers * self.kv_heads * self.head_dim * DTYPE_BYTES[self.kv_dtype or self.dtype]
        return growing_bytes_per_token(self.cache)

    @property
    def constant_bytes(self) -> int:
        """Bytes that one session keeps beside what grows: windows, rings and states of the decoder."""
        return bytes_beside_pool(self.cache)

    @property
    def rotary_base(self) -> float:
        """`rope_theta`, which running the model needs. Raises UsageError if it is null."""
        if self.rope_theta is None:
            raise UsageError("shape.rope_theta is null", hint="it is needed to run the model, not to plan")
        return self.rope_theta

    def need(self, key: Literal["intermediate_size", "vocab_size", "context_length"]) -> int:
        """A size that running the model needs. Raises UsageError if it is not known."""
        value: int | None = getattr(self, key)
        if value is None:
            raise UsageError(f"shape.{key} is not given", hint="it is needed to run the model, not to plan")
        return value

    @model_validator(mode="after")
    def _whole_groups(self) -> ModelShape:
        if self.heads % self.kv_heads:
            raise ValueError("heads must be a multiple of kv_heads")
        return self


class KvPoolSpec(StrictModel):
    """The KV pool's budget: `bytes` or `blocks`, in blocks of `block_size` positions."""

    bytes: Size | None = None
    blocks: Count | None = None
    block_size: Annotated[int, Field(ge=1, le=4096, strict=True)] = 16

    @model_validator(mode="after")
    def _one_budget(self) -> KvPoolSpec:
        if (self.bytes is None) == (self.blocks is None):
            raise ValueError("give exactly one of bytes and blocks")
        return self

    def block_count(self, kv_bytes_per_token: int, beside: int = 0) -> int:
        """Whole blocks in the budget, less `beside` bytes of other caches in the same memory."""
        if self.blocks is not None:
            return self.blocks
        assert self.bytes is not None
        return max(0, self.bytes - beside) // max(1, kv_bytes_per_token * self.block_size)


class StageRate(StrictModel):
    """Positions a second that a further stage adds."""

    listening: Real = 0.0
    speaking: Real = 0.0


class CacheStage(StrictModel):
    """A further consumer of session memory beside the main decoder.

    - paged: a cache of its own that grows (a talker); `limit` ends it, `resets: turn` drops it at each
      turn's end.
    - ring: `limit` positions allocated when the session opens.
    - per_frame: rebuilt inside each frame (a depth transformer).
    - state: fixed bytes a session (`state_bytes`), for example codec or encoder state.
    """

    name: Prose
    kind: StageKind
    kv_bytes_per_position: Tokens = 0
    positions_per_s: StageRate = StageRate()
    limit: Count | None = None
    resets: Literal["never", "turn"] = "never"
    pool: KvPoolSpec | None = None  # None: memory outside every pool
    state_bytes: Size = 0
    verified: bool = True

    @property
    def cache_group(self) -> CacheGroup | None:
        """As a cache group; None for a cache that is rebuilt inside each frame."""
        if self.kind == "per_frame":
            return None
        if self.kind == "state":
            return CacheGroup.model_validate(
                {"name": self.name, "law": "state", "layers": 1, "state_bytes": self.state_bytes},
                context=PLAIN_NUMBERS,
            )
        even = self.kv_bytes_per_position % 2 == 0  # the width is not told apart from the number type
        return CacheGroup(
            name=self.name,
            law="ring" if self.kind == "ring" else "growing",
            layers=1,
            key_width=self.kv_bytes_per_position // 2 if even else self.kv_bytes_per_position,
            dtype="bfloat16" if even else "float8",
            limit=self.limit if self.kind == "ring" else None,
            own_positions=True,
        )

    @property
    def bytes_at_open(self) -> int:
        """Memory outside every pool that a session takes when it opens and keeps: rings and fixed state."""
        ring = self.kv_bytes_per_position * (self.limit or 0) if self.kind == "ring" else 0
        return self.state_bytes + (ring if self.pool is None else 0)

    @model_validator(mode="after")
    def _complete(self) -> CacheStage:
        if self.kind != "state" and self.kv_bytes_per_position == 0:
            raise ValueError(f"stage {self.name}: kind {self.kind} needs kv_bytes_per_position")
        if self.kind == "ring" and self.limit is None:
            raise ValueError(f"stage {self.name}: a ring needs its limit")
        if self.kind == "state" and self.state_bytes == 0:
            raise ValueError(f"stage {self.name}: kind state needs state_bytes")
        return self
