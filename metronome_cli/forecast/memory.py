"""KV pool from a device's memory: each item that is subtracted.

    pool = memory x share - weights - activations - state outside the pool x N

`share` is the part that the serving process may use; the rest is for the driver, allocator losses and CUDA graphs.
vLLM's default is 0.9.

Activations are the widest moment of a step in which all N sessions' frames are prefilled together: per
position the residual (twice), queries, keys and values, and both halves of the MLP, one layer at a time;
and one float32 row of logits a session. An upper bound for fused kernels, about right for plain ones.

State outside the pool is what stages keep beside it: `state_bytes`, rings of `limit` positions, and paged
caches without a pool at what they reach, though never more than `limit`: by the end of a session on average,
or, where a turn's end empties them, in a turn that one in a hundred outlasts (-ln 0.01 = 4.6 mean turns).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metronome_cli.config.cache_groups import DTYPE_BYTES
from metronome_cli.config.model_shape import CacheStage
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.hazards import turn_process
from metronome_cli.forecast.pool_forecast import PoolBudget

DEFAULT_SHARE = 0.9
LONG_TURN = -math.log(0.01)  # mean turns


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One line of the budget: bytes taken (negative) or given, and how it was found."""

    what: str
    size: int
    how: str


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Resident weights, in bytes, and where the figure comes from."""

    size: int
    how: str


def weights_known(profile: Profile) -> bool:
    """Whether the profile states its weights, or the widths that they follow from."""
    shape = profile.shape
    return (
        shape.weight_bytes is not None
        or shape.parameters is not None
        or None not in (shape.intermediate_size, shape.vocab_size)
    )


def profile_weights(profile: Profile) -> WeightBytes:
    """Return the size of the weights by the profile. Raises UsageError if it is unknown."""
    shape = profile.shape
    if not weights_known(profile):
        raise UsageError(
            "the size of the weights is unknown, so the memory left for sessions is unknown",
            hint="put the safetensors files beside the configuration, or give shape.weight_bytes in a profile",
        )
    if shape.weight_bytes is not None:
        return WeightBytes(shape.weight_bytes, "profile: shape.weight_bytes")
    count = max(shape.parameters or 0, decoder_parameters(profile))
    source = "profile: shape.parameters" if count == shape.parameters else "from the decoder's shape"
    return WeightBytes(count * DTYPE_BYTES[shape.dtype], f"{count:,} parameters of {shape.dtype}, {source}")


def decoder_parameters(profile: Profile) -> int:
    """Embedding and head, attention, gated MLP of the main decoder; unknown widths count as 0."""
    s = profile.shape
    attention = 2 * s.hidden_size * (s.heads + s.kv_heads) * s.head_dim
    return 2 * (s.vocab_size or 0) * s.hidden_size + s.layers * (
        attention + 3 * s.hidden_size * (s.intermediate_size or 0)
    )


def activations(profile: Profile, sessions: int) -> int:
    """Bytes, at the widest moment of a step with every session's frame in it."""
    s, size = profile.shape, DTYPE_BYTES[profile.shape.dtype]
    positions = min(sessions, profile.max_batch_size) * math.ceil(max(1.0, profile.tokens.prefill))
    width = 2 * s.hidden_size + (s.heads + 2 * s.kv_heads) * s.head_dim + 2 * (s.intermediate_size or 0)
    return positions * width * size + min(sessions, profile.max_batch_size) * (s.vocab_size or 0) * 4


def state_outside(profile: Profile) -> int:
    """Bytes that one session keeps outside every pool: the decoder's windows and states, and stages."""
    return profile.shape.constant_bytes + sum(
        _stage_bytes(profile, stage) for stage in profile.stages if stage.pool is None
    )


def _stage_bytes(profile: Profile, stage: CacheStage) -> int:
    if stage.kind not in ("paged", "ring"):
        return stage.state_bytes
    positions = stage.limit if stage.kind == "ring" and stage.limit else _reached(profile, stage)
    if stage.limit is not None:
        positions = min(positions, stage.limit)
    return stage.state_bytes + positions * stage.kv_bytes_per_position


def _reached(profile: Profile, stage: CacheStage) -> int:
    """Positions that a paged cache of its own comes to in one session."""
    process, speed = turn_process(profile), stage.positions_per_s
    if stage.resets == "turn" and process.varies:
        heard = speed.listening * process.listen_s
        return math.ceil(LONG_TURN * (heard + speed.speaking * process.turn_s))
    mean = process.share * speed.speaking + (1 - process.share) * speed.listening
    return math.ceil(profile.session_length * mean)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """A device's memory, divided up."""

    profile: Profile
    memory: int
    weights: WeightBytes
    share: float = DEFAULT_SHARE
    block_tokens: int = 16

    def lines(self, sessions: int) -> list[MemoryItem]:
        """The budget for that many sessions; the last line is the pool. Raises UsageError when nothing is
        left.
        """
        outside = state_outside(self.profile)
        taken = [
            MemoryItem("memory", self.memory, "as given"),
            MemoryItem(
                "reserve",
                -round(self.memory * (1 - self.share)),
                f"{100 * (1 - self.share):.0f} % left to driver and allocator",
            ),
            MemoryItem("weights", -self.weights.size, self.weights.how),
            MemoryItem(
                "activations",
                -activations(self.profile, sessions),
                f"one step of {sessions:,} session{'s' if sessions > 1 else ''}, estimated",
            ),
        ]
        if outside:
            taken.append(
                MemoryItem(
                    "session state", -outside * sessions, f"{outside:,} bytes a session outside the pool"
                )
            )
        return [*taken, MemoryItem("KV pool", sum(line.size for line in taken), "what is left")]

    def blocks(self, sessions: int) -> int:
        """Whole blocks in the pool; 0 when nothing is left."""
        pool = self.lines(sessions)[-1].size
        return max(0, pool) // max(1, self.profile.shape.kv_bytes_per_token * self.block_tokens)

    def budget(self, sessions: int, occupied: float = 0.0) -> PoolBudget:
        """The pool as a forecast needs it. Raises UsageError when the weights do not even fit."""
        if self.blocks(sessions) < 1:
            lines = ", ".join(
                f"{line.what} {line.size / 2**30:+.2f} GiB" for line in self.lines(sessions)[:-1]
            )
            raise UsageError(
                f"no memory is left for a KV pool: {lines}",
                hint="give more --device-memory, a larger --memory-utilization, fewer sessions, or smaller weights",
            )
        return PoolBudget(self.blocks, self.block_tokens, occupied)
