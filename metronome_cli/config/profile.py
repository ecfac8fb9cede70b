"""A profile: one model as a periodic load, all that `capacity`, `probe` and `predict` need to know of it.

YAML on disk, validated here; unknown keys are refused with the nearest known one named (config/loading.py).
Quantities carry units ("80ms", "168MiB"). Sizes are bytes, times seconds, after parsing. A profile that was
dumped as plain numbers, as in a report, is read back with `Profile.from_numbers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from metronome_cli.config.objectives import Objective
from metronome_cli.config.policy import Exhaustion, PolicySpec, SinkPositions
from metronome_cli.config.quantities import parse_duration, parse_fraction, parse_size
from metronome_cli.config.validation import RefusedError
from metronome_cli.errors import UsageError

CHUNK_S = 0.020  # clients send audio in 20 ms pieces, as the paper's do

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}
Dtype = Literal["float32", "bfloat16", "float16", "float8"]
StageKind = Literal["paged", "ring", "per_frame", "state"]


PLAIN_NUMBERS = {"plain_numbers": True}  # validation context of data that was dumped, not written by hand


def _quantity(parse: Callable[[str], object], example: str = "") -> BeforeValidator:
    """Text with a unit; a bare number only where `example` is empty or the data is a dump."""

    def read(value: object, info: ValidationInfo) -> object:
        if isinstance(value, str):
            return _parsed(parse, value)
        bare = isinstance(value, int | float) and not isinstance(value, bool)
        if bare and example and not (info.context or {}).get("plain_numbers"):
            raise ValueError(f"a number needs its unit here, such as {example}")
        return value

    return BeforeValidator(read)


def _parsed(parse: Callable[[str], object], text: str) -> object:
    try:
        return parse(text)
    except UsageError as error:
        raise RefusedError(error) from None


Real = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1e9)]
Duration = Annotated[Real, _quantity(parse_duration, "80ms"), Field(gt=0)]
Size = Annotated[int, _quantity(parse_size, "2GiB"), Field(strict=True, ge=0, le=2**60)]
Fraction = Annotated[Real, _quantity(parse_fraction), Field(le=1)]
Count = Annotated[int, Field(ge=1, le=10**9, strict=True)]
Parameters = Annotated[int, Field(ge=1, le=10**14, strict=True)]
Tokens = Annotated[int, Field(ge=0, le=10**9, strict=True)]
PolicyText = Annotated[str, AfterValidator(lambda text: str(_parsed(PolicySpec.parse, text)))]
ObjectiveText = Annotated[str, AfterValidator(lambda text: str(_parsed(Objective.parse, text)))]


class Strict(BaseModel):
    """Frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Frame(Strict):
    """The beat. `deadline` is the period unless given; both in seconds; `sample_rate` in Hz."""

    period: Duration
    deadline: Duration | None = None
    sample_rate: Annotated[int, Field(ge=1000, le=384_000, strict=True)]
    backlog_limit: Count = 25  # frames; beyond it a session has lost the beat

    @property
    def period_s(self) -> float:
        return self.period

    @property
    def deadline_s(self) -> float:
        return self.deadline if self.deadline is not None else self.period

    @property
    def samples(self) -> int:
        """Samples a frame at `sample_rate`."""
        return round(self.period * self.sample_rate)

    @model_validator(mode="after")
    def _whole_chunks(self) -> Frame:
        chunks = self.period / CHUNK_S
        if abs(chunks - round(chunks)) > 1e-6 or round(chunks) < 1:
            raise ValueError(f"period must be a whole number of {CHUNK_S * 1e3:.0f} ms client chunks")
        return self


class TokensOut(Strict):
    """Tokens decoded a frame in each state of the conversation."""

    listening: Tokens
    speaking: Tokens


class FrameTokens(Strict):
    """Cache positions a frame: `into` prefilled from the audio (markers included), `out` decoded.

    `fused` models (Moshi) sum input and output streams into `into` positions; their `out` adds none.
    """

    into: Annotated[Real, Field(le=1e6)]
    out: TokensOut
    fused: bool = False

    def per_frame(self, speaking: bool) -> float:
        """Cache positions that one frame adds."""
        out = self.out.speaking if speaking else self.out.listening
        return self.into + (0 if self.fused else out)


class Turns(Strict):
    """Turn-taking of a session: an alternating process, seeded per session.

    `speaking_share` is the long-run share of time the model speaks, `turn` the mean length of one turn.
    """

    speaking_share: Fraction = 0.5
    turn: Duration = 8.0


class Shape(Strict):
    """A decoder's shape as it concerns load and memory."""

    layers: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    hidden: Count
    mlp: Count
    vocab: Count
    dtype: Dtype = "bfloat16"
    kv_dtype: Dtype | None = None  # the cache's, where it differs
    context: Count
    rope_theta: Annotated[Real, Field(gt=0)] = 10_000.0
    parameters: Parameters | None = None  # read at a step, where layers alone do not say (experts, towers)
    active_parameters: Parameters | None = None  # used by one token, where that is fewer (experts)
    weight_bytes: Size | None = None  # resident weights, where dtype x parameters does not say

    @property
    def kv_bytes_per_token(self) -> int:
        """2 x layers x KV heads x head dim x bytes: keys and values of one position."""
        return 2 * self.layers * self.kv_heads * self.head_dim * DTYPE_BYTES[self.kv_dtype or self.dtype]

    @model_validator(mode="after")
    def _whole_groups(self) -> Shape:
        if self.heads % self.kv_heads:
            raise ValueError("heads must be a multiple of kv_heads")
        return self


class Pool(Strict):
    """The KV pool's budget: `bytes` or `blocks`, in blocks of `block_tokens` positions."""

    bytes: Size | None = None
    blocks: Count | None = None
    block_tokens: Annotated[int, Field(ge=1, le=4096, strict=True)] = 16

    @model_validator(mode="after")
    def _one_budget(self) -> Pool:
        if (self.bytes is None) == (self.blocks is None):
            raise ValueError("give exactly one of bytes and blocks")
        return self

    def block_count(self, kv_bytes_per_token: int) -> int:
        """Whole blocks in the budget."""
        if self.blocks is not None:
            return self.blocks
        assert self.bytes is not None
        return self.bytes // (kv_bytes_per_token * self.block_tokens)


class StagePositions(Strict):
    """Positions a second that a further stage adds."""

    listening: Real = 0.0
    speaking: Real = 0.0


class Stage(Strict):
    """A further consumer of session memory beside the main decoder.

    - paged: a cache of its own that grows (a talker); `limit` ends it, `resets: turn` drops it at each
      turn's end.
    - ring: `limit` positions allocated when the session opens.
    - per_frame: rebuilt inside each frame (a depth transformer).
    - state: fixed bytes a session (`state_bytes`), for example codec or encoder state.
    """

    name: str
    kind: StageKind
    kv_bytes_per_position: Tokens = 0
    positions_per_s: StagePositions = StagePositions()
    limit: Count | None = None
    resets: Literal["never", "turn"] = "never"
    pool: Pool | None = None  # None: memory outside every pool
    state_bytes: Size = 0
    verified: bool = True

    @property
    def bytes_at_open(self) -> int:
        """Memory outside every pool that a session takes when it opens and keeps: rings and fixed state."""
        ring = self.kv_bytes_per_position * (self.limit or 0) if self.kind == "ring" else 0
        return self.state_bytes + (ring if self.pool is None else 0)

    @model_validator(mode="after")
    def _complete(self) -> Stage:
        if self.kind != "state" and self.kv_bytes_per_position == 0:
            raise ValueError(f"stage {self.name}: kind {self.kind} needs kv_bytes_per_position")
        if self.kind == "ring" and self.limit is None:
            raise ValueError(f"stage {self.name}: a ring needs its limit")
        if self.kind == "state" and self.state_bytes == 0:
            raise ValueError(f"stage {self.name}: kind state needs state_bytes")
        return self


class Source(Strict):
    """Where a figure was read, and how sure it is: A authors' own, B an independent port, C second hand."""

    what: str
    where: str
    grade: Literal["A", "B", "C", "D", "M"] = "A"


class Profile(Strict):
    """One model as a periodic load. See `docs/profiles.md` for each key."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)]
    title: str
    description: str = ""
    adapter: str | None = None  # the class of models/ that runs it; None: for `predict` only
    adapter_options: dict[str, int | float | str | bool] = {}
    frame: Frame
    tokens: FrameTokens
    turns: Turns = Turns()
    shape: Shape
    pool: Pool | None = None  # None: sized from the memory the user names
    policy: PolicyText
    sink_positions: SinkPositions = "rolling"
    exhaustion: Exhaustion = "stall"
    max_batch: Count = 256
    session_length: Duration = 600.0
    head_tokens: Tokens = 0  # prompt positions a session starts with
    stages: tuple[Stage, ...] = ()
    objectives: tuple[ObjectiveText, ...] = ()
    clock: Literal["real", "virtual"] | None = None
    verified: bool = True
    unverified: tuple[str, ...] = ()  # figures that are not verified, named
    sources: tuple[Source, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def from_numbers(cls, data: Mapping[str, Any]) -> Profile:
        """A profile from `model_dump(mode="json")`, where seconds and bytes are plain numbers."""
        return cls.model_validate(data, context=PLAIN_NUMBERS)

    @property
    def policy_spec(self) -> PolicySpec:
        return PolicySpec.parse(self.policy)

    @property
    def mean_tokens_per_frame(self) -> float:
        """Cache positions a frame, averaged over listening and speaking."""
        share = self.turns.speaking_share
        return share * self.tokens.per_frame(True) + (1 - share) * self.tokens.per_frame(False)

    def positions_at(self, age_s: float) -> int:
        """Cache positions that a session of that age has seen, at its mean rate."""
        return round(self.head_tokens + age_s / self.frame.period_s * self.mean_tokens_per_frame)

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        spec, context = self.policy_spec, self.shape.context
        if spec.kind != "ring" and spec.window + spec.sinks > context:
            raise ValueError(f"policy {spec} is wider than shape.context, {context} positions")
        if self.head_tokens >= context:
            raise ValueError(f"head_tokens is {self.head_tokens}; it must be below shape.context, {context}")
        if self.verified == bool(self.unverified):
            raise ValueError("`verified: false` and `unverified`, the figures in doubt, need each other")
        if self.pool is not None and self.pool.block_count(self.shape.kv_bytes_per_token) < 1:
            raise ValueError("pool.bytes is less than one block")
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names):
            raise ValueError("two stages have the same name")
        return self
