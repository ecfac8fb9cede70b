"""Bounded policies compute exactly what their rule says, and read nothing else. Freed blocks are NaN throughout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.config.cache_policy import CachePolicySpec, SinkPositions
from metronome_cli.engine.build_decoder import LayerPath, build_decoder
from metronome_cli.engine.paged_decoder import PagedDecoder

from .decoders import assert_same, decoder, feed, stock_hidden, stream
from .reference import llama_hidden, rolling, union

MODEL = decoder("llama")


def _stack(
    policy: str, sinks: SinkPositions = "absolute", *, way: LayerPath = "fast", **options: int
) -> PagedDecoder:
    return build_decoder(
        MODEL,
        policy=CachePolicySpec.parse(policy),
        sink_positions=sinks,
        way=way,
        poison=True,
        **{"blocks": 30, "block_tokens": 4, **options},  # type: ignore[arg-type]
    )


def _run(stack: PagedDecoder, embeds: torch.Tensor, chunks: list[int]) -> tuple[torch.Tensor, list[int]]:
    """Hidden state after each chunk, and the position it belongs to."""
    stack.open(0)
    ends = torch.tensor(chunks).cumsum(0).tolist()
    hidden = [feed(stack, [0], [embeds[end - n : end]]) for n, end in zip(chunks, ends, strict=True)]
    return torch.cat(hidden), [end - 1 for end in ends]


def test_the_reference_equals_stock_when_nothing_is_left_out() -> None:
    embeds = stream(20, 4)
    assert_same(llama_hidden(MODEL, embeds, union(10**6, 0)), stock_hidden(MODEL, embeds))


@settings(max_examples=25, deadline=None)
@given(
    window=st.integers(0, 20),
    sinks=st.integers(0, 9),
    block_tokens=st.integers(1, 7),
    chunks=st.lists(st.integers(1, 6), min_size=4, max_size=12),
    seed=st.integers(0, 99),
)
def test_a_window_is_the_union_mask(
    window: int, sinks: int, block_tokens: int, chunks: list[int], seed: int
) -> None:
    embeds = stream(sum(chunks), seed)
    policy = f"window({max(window, 1)}, {sinks})"
    stack = _stack(policy, block_tokens=block_tokens, blocks=60)
    hidden, at = _run(stack, embeds, chunks)
    expected = llama_hidden(MODEL, embeds, union(max(window, 1), sinks))
    assert_same(hidden, expected[at])


@pytest.mark.parametrize("way", ["fast", "general"])
@pytest.mark.parametrize(("window", "sinks"), [(8, 3), (11, 4), (5, 6)])
@pytest.mark.parametrize("chunk", [1, 3])
def test_rolling_sinks_equal_the_reference_that_recomputes_positions(
    way: LayerPath, window: int, sinks: int, chunk: int
) -> None:
    embeds = stream(60, 7)
    hidden, at = _run(
        _stack(f"window({window}, {sinks})", "rolling", way=way), embeds, [chunk] * (60 // chunk)
    )
    expected = llama_hidden(MODEL, embeds, rolling(window, sinks, lambda t: t - t % chunk + chunk - 1))
    assert_same(hidden, expected[at])


def test_rolling_and_absolute_sinks_differ_only_once_the_window_has_filled() -> None:
    embeds = stream(40, 8)
    rolled, at = _run(_stack("window(8, 3)", "rolling"), embeds, [1] * 40)
    fixed, _ = _run(_stack("window(8, 3)", "absolute"), embeds, [1] * 40)
    filled = at.index(8 + 3)
    assert_same(rolled[: filled + 1], fixed[: filled + 1])
    assert (rolled[filled + 1 :] - fixed[filled + 1 :]).abs().amax(-1).min() > 1e-3


def test_sinks_keep_their_distance_however_old_the_session_is() -> None:
    """Two sessions with the same keys, one at 10^7 positions: the same scores, so the same hidden state."""
    stack = _stack("window(8, 4)", "rolling")
    near, far = 40, 40 + 4 * 2_500_000
    outputs = []
    for age in (near, far):
        stack.open(0, age)
        _unturn_blocks(stack, age)
        outputs.append(feed(stack, [0], [stream(1, 9)]))
        stack.close(0)
    assert_same(outputs[0], outputs[1])


def _unturn_blocks(stack: PagedDecoder, age: int) -> None:
    """Put the same unrotated keys into a slot of any age, turned to its positions (the sinks to 0, 1, ...)."""
    table = stack._tables[0]
    data, size = stack.pool.data, stack.pool.block_tokens
    generator = torch.Generator().manual_seed(1)
    for block, start in zip(table.ids.tolist(), table.starts.tolist(), strict=True):
        keys = torch.randn(*data.shape[:1], *data.shape[2:3], size, data.shape[-1], generator=generator)
        positions = torch.arange(start, start + size).numpy()
        cos, sin = stack.layers.rotary.turns(positions, data.dtype, data.device)
        turned = keys * cos[:, 0] + keys.roll(keys.shape[-1] // 2, -1) * sin[:, 0]
        data[:, 0, :, block] = turned


@settings(max_examples=20, deadline=None)
@given(
    window=st.integers(1, 14),
    block_tokens=st.integers(1, 6),
    chunk=st.integers(1, 4),
    chunks=st.lists(st.integers(1, 7), min_size=4, max_size=12),
)
def test_a_ring_attends_its_window_whatever_the_chunks(
    window: int, block_tokens: int, chunk: int, chunks: list[int]
) -> None:
    embeds = stream(sum(chunks), 3)
    stack = build_decoder(
        MODEL,
        blocks=30,
        block_tokens=block_tokens,
        policy=CachePolicySpec("ring", window),
        chunk=chunk,
        poison=True,
    )
    hidden, at = _run(stack, embeds, chunks)
    expected = llama_hidden(MODEL, embeds, union(window - 1, 0))
    assert_same(hidden, expected[at])
    assert stack.blocks_held(0) == -(-(window + chunk - 1) // block_tokens)


def test_recycle_restarts_with_its_newest_tokens_at_position_0() -> None:
    """Grows to 2 W = 12; the chunk that would pass it starts again from the newest W = 6 inputs."""
    stack, embeds = _stack("recycle(6)"), stream(40, 6)
    stack.open(0)
    begin, hidden = 0, []
    for at in range(0, 40, 2):
        hidden.append(feed(stack, [0], [embeds[at : at + 2]]))
        if at + 2 - begin > 12:
            begin = at - 6
        expected = stock_hidden(MODEL, embeds[begin : at + 2])[-1:]
        assert_same(hidden[-1], expected)
        assert stack.length(0) == at + 2
        assert stack.blocks_held(0) <= 3
    assert begin > 0


@pytest.mark.parametrize("policy", ["window(8, 3)", "ring(9)", "recycle(8)", "unbounded"])
@pytest.mark.parametrize("age", [0, 5, 16, 17, 29, 1000])
def test_a_slot_opened_at_an_age_holds_what_one_that_lived_it_holds(policy: str, age: int) -> None:
    stack = _stack(policy, "rolling", blocks=600)
    stack.open(0)
    for at in range(age):
        feed(stack, [0], [stream(1, at)])
    stack.open(1, age)
    assert stack.length(0) == stack.length(1) == age
    assert stack.reserve(0, 1)
    assert stack.reserve(1, 1)
    assert stack.forward([0, 1], stream(2, 0).unsqueeze(1), [1, 1]).isfinite().all()
    lived, opened = stack._tables[0], stack._tables[1]
    assert (lived.base, lived.length) == (opened.base, opened.length)
    assert lived.starts.tolist() == opened.starts.tolist()
    assert stack.blocks_held(1) - 1 <= stack.blocks_at(age) <= stack.blocks_held(1) + 1
