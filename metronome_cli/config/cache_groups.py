"""What one session keeps between frames, as groups of layers with one law each.

    law        bytes after n positions                          example
    growing    n x bytes_per_position                           full attention
    latent     n x bytes_per_position                           multi-head latent attention: one vector, no V
    chunked    min(n, limit) x bytes_per_position               Llama 4's local layers
    windowed   min(n, limit) x bytes_per_position               sliding-window layers
    ring       limit x bytes_per_position, from the start       Moshi's streaming attention
    state      state_bytes, from the start                      Mamba, linear attention, convolution
    shared     0                                                layers that read another layer's cache

    bytes_per_position = layers x (key_width + value_width) x bytes of one number

Windows are counted as an engine keeps them that frees what no query can see; one that never frees
(`min(n, limit)` becomes `n`) keeps more. Blocks round up beyond what is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import model_validator

from metronome_cli.config.fields import Count, Prose, Size, StrictModel, Tokens
from metronome_cli.core.quantities import format_size

CacheLaw = Literal["growing", "latent", "chunked", "windowed", "ring", "state", "shared"]
Dtype = Literal["float32", "bfloat16", "float16", "float8"]
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}
LIMITED = ("chunked", "windowed", "ring")
_GROWS = ("growing", "latent", "chunked")


class CacheGroup(StrictModel):
    """Layers that keep their cache by one law.

    `key_width` and `value_width` are numbers per position in one layer (KV heads x head size);
    `state_bytes` is for all layers of the group together, null if no file says its size. `own_positions`: it
    counts positions of its own, as an audio encoder does, not the decoder's.
    """

    name: Prose
    law: CacheLaw
    layers: Count
    key_width: Tokens = 0
    value_width: Tokens = 0
    dtype: Dtype = "bfloat16"
    limit: Count | None = None  # positions, for chunked, windowed and ring
    state_bytes: Size | None = None
    own_positions: bool = False

    @property
    def bytes_per_position(self) -> int:
        """Bytes that one position takes in all layers of the group; 0 for states and shared layers."""
        if self.law in ("state", "shared"):
            return 0
        return self.layers * (self.key_width + self.value_width) * DTYPE_BYTES[self.dtype]

    def bytes_at(self, positions: int) -> int:
        """Bytes of one session after that many positions. A state of unknown size counts as 0."""
        if self.law == "state":
            return self.state_bytes or 0
        if self.law == "ring":
            positions = self.limit or 0
        elif self.limit is not None:
            positions = min(positions, self.limit)
        return positions * self.bytes_per_position

    @model_validator(mode="after")
    def _complete(self) -> CacheGroup:
        if (self.law in LIMITED) != (self.limit is not None):
            raise ValueError(f"{self.name}: `limit` belongs to laws {', '.join(LIMITED)}, and they need it")
        if self.law != "state" and self.state_bytes is not None:
            raise ValueError(f"{self.name}: `state_bytes` belongs to law state")
        if self.law not in ("state", "shared") and not self.key_width + self.value_width:
            raise ValueError(f"{self.name}: law {self.law} needs key_width or value_width")
        return self


def pool_groups(groups: Sequence[CacheGroup]) -> list[CacheGroup]:
    """The groups that a new position adds to: those without a bound and chunks, else all bounded ones.

    Chunks count as if none was freed; an engine that frees them keeps less beyond the first.
    """
    main = [group for group in groups if not group.own_positions]
    return [group for group in main if group.law in _GROWS] or [g for g in main if g.bytes_per_position]


def growing_bytes_per_token(groups: Sequence[CacheGroup]) -> int:
    """Bytes that one new position adds; if every group is bounded, until the bound of `grows_until`."""
    return sum(group.bytes_per_position for group in pool_groups(groups))


def grows_until(groups: Sequence[CacheGroup]) -> int | None:
    """Positions after which no group grows any more; None if a group grows without a bound, or none grows."""
    limits = [group.limit for group in pool_groups(groups)]
    return None if None in limits or not limits else max(limit for limit in limits if limit is not None)


def bytes_beside_pool(groups: Sequence[CacheGroup]) -> int:
    """Bytes that a session keeps beside what grows: windows and rings when full, states. Unknown states: 0."""
    inside = pool_groups(groups)
    return sum(group.bytes_at(group.limit or 0) for group in groups if group not in inside)


def constant_bytes_per_session(groups: Sequence[CacheGroup]) -> int | None:
    """Bytes of windows and rings when full, and of states; None if the size of a state is unknown."""
    kept = [group for group in groups if group.law in ("windowed", "ring", "state")]
    if any(group.law == "state" and group.state_bytes is None for group in kept):
        return None
    return sum(group.bytes_at(group.limit or 0) for group in kept)


def describe_groups(groups: Sequence[CacheGroup]) -> str:
    """ "grows by 20 KiB per token, plus 200 MiB once per session"."""
    grown, until = growing_bytes_per_token(groups), grows_until(groups)
    text = f"grows by {format_size(grown)} per token" if grown else "does not grow"
    if until is not None:
        return f"{text} up to {until:,} positions{_plus(bytes_beside_pool(groups))}"
    unknown = any(group.law == "state" and group.state_bytes is None for group in groups)
    beside = _plus(bytes_beside_pool(groups))
    return text + beside + (", plus a state of unknown size" if unknown else "")


def _plus(size: int) -> str:
    return f", plus {format_size(size)} once per session" if size else ""
