"""Every token's state in one forward, and taking tokens back."""

from __future__ import annotations

import pytest
import torch

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.paged_decoder import PagedDecoder
from tests.engine.toy import SHAPE, WEIGHTS


def stack_of(policy: str, **more: bool) -> PagedDecoder:
    stack = build_decoder(WEIGHTS, blocks=64, block_tokens=4, policy=CachePolicySpec.parse(policy), **more)  # type: ignore[arg-type]
    stack.open(0)
    return stack


def embeds(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, SHAPE.hidden_size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("policy", ["unbounded", "window(9, 0)", "window(64, 3)"])
def test_states_equal_one_token_at_a_time(policy: str) -> None:
    together, single, given = stack_of(policy), stack_of(policy), embeds(20)
    together.reserve(0, 20)
    states = together.states(0, given)
    assert states.shape == given.shape
    for at in range(20):
        single.reserve(0, 1)
        torch.testing.assert_close(
            states[at], single.forward([0], given[None, at : at + 1], [1])[0], atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize("policy", ["unbounded", "window(9, 3)"])
def test_tokens_taken_back_leave_no_trace(policy: str) -> None:
    once, twice, given = stack_of(policy), stack_of(policy), embeds(30)
    for stack in (once, twice):
        stack.reserve(0, 20)
        stack.forward([0], given[None, :20], [20])
        stack.reserve(0, 10)
    twice.forward([0], embeds(8, seed=9)[None], [8])
    twice.rewind(0, 20)
    assert twice.length(0) == 20
    torch.testing.assert_close(
        once.forward([0], given[None, 20:], [10]), twice.forward([0], given[None, 20:], [10])
    )


def test_what_cannot_be_taken_back_is_refused() -> None:
    stack = stack_of("unbounded")
    with pytest.raises(ValueError, match="not past 3"):
        stack.rewind(0, 3)
    for policy in ("ring(8)", "recycle(8)"):
        with pytest.raises(ValueError, match="cannot be rewound"):
            stack_of(policy).rewind(0, 0)


def test_a_ring_takes_no_more_than_its_chunk() -> None:
    stack = stack_of("ring(8)")
    stack.reserve(0, 5)
    with pytest.raises(ValueError, match="in one forward"):
        stack.states(0, embeds(5))


@pytest.mark.parametrize("positions", ["rolling", "absolute"])
def test_a_skipped_slot_sees_its_sinks_and_what_comes_next(positions: str) -> None:
    """With absolute sinks, moving everything but the sinks by whole turns of nothing: only distance counts."""
    policy, given = "window(20, 3)", embeds(30)
    lived, skipped = (stack_of(policy, sink_positions=positions) for _ in range(2))  # type: ignore[arg-type]
    for stack in (lived, skipped):
        stack.reserve(0, 4)
        stack.forward([0], given[None, :4], [4])
    assert skipped.skip(0, 997) == 1000
    assert skipped.length(0) == 1000
    assert skipped.blocks_held(0) == 1
    skipped.reserve(0, 26)
    found = skipped.states(0, given[4:])
    assert torch.isfinite(found).all()
    lived.reserve(0, 26)
    there = lived.states(0, given[4:])
    assert not torch.allclose(found, there, atol=1e-4)  # the sinks are farther away


def test_without_sinks_a_skipped_slot_is_a_fresh_one() -> None:
    given = embeds(24)
    fresh, skipped = stack_of("window(9, 0)"), stack_of("window(9, 0)")
    skipped.reserve(0, 4)
    skipped.forward([0], embeds(4, seed=7)[None], [4])
    skipped.skip(0, 100_000)
    for stack in (fresh, skipped):
        stack.reserve(0, 24)
    torch.testing.assert_close(fresh.states(0, given), skipped.states(0, given), atol=1e-4, rtol=1e-3)


def test_what_cannot_skip_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot skip"):
        stack_of("unbounded").skip(0, 100)
    with pytest.raises(ValueError, match="cannot skip"):
        stack_of("window(9, 3)").skip(0, 100)
    early = stack_of("window(9, 0)")
    with pytest.raises(ValueError, match="still holds"):
        early.skip(0, 8)
