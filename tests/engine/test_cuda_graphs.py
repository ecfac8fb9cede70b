"""What a graph stands on, without a GPU: padding to a bucket changes nothing, and loading a plan copies all of it."""

from __future__ import annotations

import pytest
import torch

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.cuda_graphs import TENSORS, copied, load, padded_size
from metronome_cli.engine.paged_decoder import PagedDecoder
from metronome_cli.engine.step_plan import StepPlanner

from .decoders import assert_same, decoder, feed, stream

MODEL = decoder("qwen3")


def _stack(policy: str) -> PagedDecoder:
    return build_decoder(MODEL, blocks=60, block_tokens=4, policy=CachePolicySpec.parse(policy), poison=True)


def _pad(stack: PagedDecoder) -> None:
    planner = stack._planner
    stack._planner = StepPlanner(
        planner.pool, planner.group, planner.rotary, planner.reach, bucket=padded_size
    )


def test_buckets_are_few_and_pad_by_a_half_at_most() -> None:
    assert [padded_size(n) for n in range(1, 14)] == [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16]
    assert all(n <= padded_size(n) < 1.5 * n for n in range(1, 2000))
    assert len({padded_size(n) for n in range(1, 1025)}) == 20


@pytest.mark.parametrize("policy", ["unbounded", "window(9, 3)", "ring(9)"])
def test_a_padded_step_equals_the_bare_one(policy: str) -> None:
    bare, padded = _stack(policy), _stack(policy)
    _pad(padded)
    outputs = []
    for stack in (bare, padded):
        for slot, age in enumerate((0, 5, 18, 27, 40)):
            stack.open(slot, age)
        steps = [[stream(n, 10 * n + slot) for slot in range(5)] for n in (1, 1, 3, 1)]
        outputs.append(torch.cat([feed(stack, range(5), chunks) for chunks in steps]))
    assert_same(outputs[1], outputs[0])


def test_loading_a_plan_copies_every_tensor_of_it() -> None:
    stack = _stack("window(8, 3)")
    stack.open(0, 30)
    stack.open(1, 50)
    plans = []
    for _ in range(2):
        for slot in (0, 1):
            stack.reserve(slot, 1)
        plans.append(stack._planner.plan([stack._tables[s] for s in (0, 1)], [1, 1], 1))
        stack.forward([0, 1], stream(2, 0)[:, None], [1, 1])
    own = copied(plans[0])
    assert own.turn is not None
    load(own, plans[1])
    for name in TENSORS:
        assert torch.equal(getattr(own, name), getattr(plans[1], name)), name
        assert getattr(own, name).data_ptr() != getattr(plans[1], name).data_ptr()
    for mine, theirs in zip(own.turn, plans[1].turn or (), strict=True):
        assert torch.equal(mine, theirs)
    assert set(TENSORS) == {"positions", "cos", "sin", "write_rows", "gather_rows", "bias", "last"}


def test_a_cpu_has_no_graphs() -> None:
    assert _stack("unbounded").layers.bucket is None
