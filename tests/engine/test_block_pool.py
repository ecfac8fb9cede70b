"""The block pool: nothing leaks, nothing is given twice, occupancy is exact."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from metronome_cli.engine.block_pool import SCRATCH, BlockPool, PoolExhausted

TOTAL = 9


def pool(**options: object) -> BlockPool:
    shape = {"layers": 2, "kv_heads": 2, "head_dim": 4, "blocks": TOTAL, "block_tokens": 3}
    return BlockPool(**{**shape, "poison": True, **options})  # type: ignore[arg-type]


class PoolMachine(RuleBasedStateMachine):
    """Random allocations and frees against a set of held blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool()
        self.held: list[int] = []

    @rule(count=st.integers(0, TOTAL + 2))
    def allocate(self, count: int) -> None:
        room = TOTAL - len(self.held)
        if count > room:
            with pytest.raises(PoolExhausted):
                self.pool.allocate(count)
            return
        blocks = self.pool.allocate(count)
        assert len(blocks) == count
        assert not set(blocks) & set(self.held)
        assert SCRATCH not in blocks
        assert (self.pool.data[:, :, :, blocks] == 0).all()
        self.pool.data[:, :, :, blocks] = 7.0
        self.held.extend(blocks)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(self.held), unique=True))
        self.pool.free(gone)
        self.held = [block for block in self.held if block not in gone]

    @rule(block=st.integers(-1, TOTAL + 1))
    def free_what_is_not_held(self, block: int) -> None:
        if block not in self.held:
            with pytest.raises(ValueError, match="not all allocated"):
                self.pool.free([*self.held[:1], block])

    @invariant()
    def occupancy_is_exact(self) -> None:
        assert self.pool.used_blocks == len(self.held)
        assert self.pool.used_blocks + self.pool.free_blocks == self.pool.total == TOTAL

    @invariant()
    def held_blocks_are_untouched_and_free_ones_poisoned(self) -> None:
        assert (self.pool.data[:, :, :, self.held] == 7.0).all()
        free = [b for b in range(1, TOTAL + 1) if b not in self.held]
        assert self.pool.data[:, :, :, free].isnan().all()
        assert (self.pool.data[:, :, :, SCRATCH] == 0).all()


PoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestPool = PoolMachine.TestCase


def test_freeing_a_block_twice_in_one_call_is_refused() -> None:
    blocks = pool()
    taken = blocks.allocate(2)
    with pytest.raises(ValueError, match="not all allocated"):
        blocks.free([taken[0], taken[0]])
    assert blocks.used_blocks == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_of_a_block_are_keys_and_values_of_every_layer(dtype: torch.dtype) -> None:
    assert pool(dtype=dtype).block_bytes == 2 * 2 * 2 * 3 * 4 * dtype.itemsize


def test_a_pool_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        pool(blocks=0)
