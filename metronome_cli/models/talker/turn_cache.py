"""Cache of a second stage: a decoder on a pool of its own.

A slot is opened when its session begins to speak. If the stage `resets` each turn, it is closed at the end of the
turn and its blocks are freed; else its cache stays and grows. Beyond the position limit of the stage the cache is
restarted and the restart is counted, because servers fail at that limit. If no block is free, the session waits: it
has no output in that frame and keeps its cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.model_shape import CacheStage, ModelShape, StageRate
from metronome_cli.config.profile import Profile
from metronome_cli.core.types import PoolState
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.paged_decoder import PagedDecoder

TURNS_HELD = 4  # mean turns per slot that fit if the profile gives the stage no pool
_BLOCK_TOKENS = 16


class TurnCache:
    """Slots of a stage. `restarts` counts caches that reached the limit."""

    def __init__(self, stack: PagedDecoder, limit: int | None, *, each_turn: bool) -> None:
        self.stack = stack
        self.restarts = 0
        self._limit = limit
        self._each_turn = each_turn
        self._waiting: dict[int, bool] = {}  # open slots

    def is_open(self, slot: int) -> bool:
        return slot in self._waiting

    def end_turn(self, slot: int) -> None:
        """The turn is over; the cache is dropped where the stage does so."""
        if self._each_turn:
            self.leave(slot)

    def leave(self, slot: int) -> None:
        """Free the blocks of this slot. Does nothing if it is not open."""
        if self._waiting.pop(slot, None) is not None:
            self.stack.close(slot)

    def passes_limit(self, slot: int, positions: int) -> bool:
        """True if `count` more positions would exceed the limit."""
        return (
            self._limit is not None
            and self.is_open(slot)
            and self.stack.length(slot) + positions > self._limit
        )

    def restart(self, slot: int) -> None:
        """Drop the cache of a slot at its limit."""
        self.restarts += 1
        self.leave(slot)

    def make_room(self, slot: int, positions: int) -> bool:
        """Open the slot if necessary and reserve positions. Returns False if no block is free."""
        if not self.is_open(slot):
            self.stack.open(slot)
        self._waiting[slot] = not self.stack.reserve(slot, positions)
        return not self._waiting[slot]

    def forward(self, slots: Sequence[int], embeds: Tensor, counts: Sequence[int]) -> Tensor:
        """See `CachedDecoder.forward`."""
        return self.stack.forward(slots, embeds, counts)

    def warm_up(self, slots: int) -> None:
        """See `PagedDecoder.capture`."""
        self.stack.capture(slots)

    def pool(self) -> PoolState:
        """The stage's pool now."""
        waiting = sum(self._waiting.values())
        pool = self.stack.pool
        return PoolState(pool.used_blocks, pool.total, len(self._waiting) - waiting, waiting)


def make_turn_cache(decoder: DecoderWeights, profile: Profile, stage: CacheStage, per_s: float) -> TurnCache:
    """A fresh stack for `stage`; `per_s`: positions a second of speech, for sizing a pool that is not
    given."""
    if stage.pool is not None:
        size = stage.pool.block_size
        blocks = stage.pool.block_count(stage.kv_bytes_per_position)
    else:
        size = _BLOCK_TOKENS
        longest = TURNS_HELD * profile.turn_taking.mean_turn * per_s + size
        blocks = profile.max_batch_size * -(-int(min(longest, stage.limit or longest)) // size)
    stack = build_decoder(decoder, blocks=blocks, block_tokens=size, policy=CachePolicySpec("unbounded"))
    return TurnCache(stack, stage.limit, each_turn=stage.resets == "turn")


def talker_stage(profile: Profile, talker: ModelShape | None, codes_per_s: float, limit: int) -> CacheStage:
    """The profile's paged stage of a talker; where it has none, one that lives for a turn."""
    named = [stage for stage in profile.stages if stage.kind == "paged" and "talker" in stage.name]
    if named:
        return named[0]
    return CacheStage(
        name="talker",
        kind="paged",
        kv_bytes_per_position=talker.kv_bytes_per_token if talker else 0,
        positions_per_s=StageRate(speaking=codes_per_s),
        limit=limit,
        resets="turn",
    )
