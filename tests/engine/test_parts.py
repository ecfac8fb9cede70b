"""Tables, policies' arithmetic, rotation, products and the input log, each on its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.model_shape import ModelShape
from metronome_cli.engine import projection
from metronome_cli.engine.block_table import BlockTable
from metronome_cli.engine.cache_policies import EVERYTHING, make_cache_policy
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.input_log import InputLog
from metronome_cli.engine.projection import Projection
from metronome_cli.engine.rotary import Rotary, rotate

POLICIES = ["unbounded", "window(9, 3)", "window(1, 0)", "window(6, 8)", "ring(7)", "recycle(8)"]


def _table(size: int, blocks: dict[int, int], length: int = 0) -> BlockTable:
    table = BlockTable(size, capacity=1)
    for start, block in blocks.items():
        table.append(block, start)
    table.length = length
    return table


def test_rows_follow_positions_through_a_gap() -> None:
    table = _table(4, {0: 7, 20: 3, 24: 5}, length=22)
    assert table.rows(4).tolist() == [3 * 4 + 2, 3 * 4 + 3, 5 * 4, 5 * 4 + 1]
    assert table.room == 6
    assert table.rows(1).tolist() == [3 * 4 + 2]


@pytest.mark.parametrize("length", [0, 1, 7, 8])
def test_rows_beyond_what_is_reserved_are_an_error(length: int) -> None:
    table = _table(4, {0: 1, 4: 2}, length)
    assert len(table.rows(8 - length)) == 8 - length
    with pytest.raises(IndexError, match="no block"):
        table.rows(9 - length)


def test_an_empty_table_has_no_rows() -> None:
    with pytest.raises(IndexError, match="no block"):
        _table(4, {}).rows(1)


@given(
    policy=st.sampled_from(POLICIES),
    size=st.integers(1, 6),
    steps=st.lists(st.integers(0, 9), max_size=25),
)
def test_a_policy_keeps_what_queries_see_and_no_block_more(policy: str, size: int, steps: list[int]) -> None:
    """After each step: every visible position has a block, and `layout` predicts exactly which blocks are held."""
    kept = make_cache_policy(CachePolicySpec.parse(policy), block_tokens=size, chunk=3)
    table, fresh = BlockTable(size), iter(range(1, 10_000))
    for new in [0, *steps]:
        gone = kept.release(table)
        assert len(set(gone)) == len(gone)
        for _ in range(kept.wanted(table, new)):
            table.append(next(fresh), table.next_start())
        if policy.startswith("ring"):
            table.cycle = table.count * size
            continue
        covered = {p for start in table.starts.tolist() for p in range(start, start + size)}
        for t in range(table.length, table.length + new):
            seen = [p for p in range(t + 1) if p < kept.sinks or p >= t - kept.window]
            assert covered.issuperset(seen)
        table.length += new
        kept.release(table)
        assert table.starts.tolist() == kept.layout(table.length, size)
        assert table.starts.tolist() == sorted(table.starts.tolist())


@pytest.mark.parametrize(("chunk", "blocks"), [(1, 4), (2, 5), (5, 5), (6, 6)])
def test_a_ring_reserves_its_window_and_one_chunk(chunk: int, blocks: int) -> None:
    ring = make_cache_policy(CachePolicySpec("ring", 16), block_tokens=4, chunk=chunk)
    assert ring.wanted(BlockTable(4), 0) == blocks
    assert len(ring.layout(0, 4)) == len(ring.layout(1000, 4)) == blocks
    assert ring.max_chunk >= chunk


def test_rotation_depends_on_distance_alone_at_any_age() -> None:
    """Scores of equal distances agree at position 10 and at 10 million, where float32 angles would be noise."""
    rotary = Rotary.plain(16, 10_000.0)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 3, 16, generator=generator)

    def score(at: int, distance: int) -> torch.Tensor:
        turned = [
            rotate(x, *rotary.turns(np.asarray([p]), torch.float32, torch.device("cpu")))
            for x, p in ((q, at), (k, at - distance))
        ]
        return (turned[0] * turned[1]).sum(-1)

    for distance in (0, 1, 9):
        torch.testing.assert_close(score(10, distance), score(10_000_000, distance), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_a_projection_is_a_linear_layer(
    packed: bool, bias: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "_packs", lambda _: packed)
    generator = torch.Generator().manual_seed(rows)
    weight, x = torch.randn(24, 16, generator=generator), torch.randn(rows, 16, generator=generator)
    other = torch.randn(rows, 24, generator=generator)
    b = torch.randn(24, generator=generator) if bias else None
    linear, y = Projection(weight, b), F.linear(x, weight, b)
    kept = other.clone()
    torch.testing.assert_close(linear(x), y)
    torch.testing.assert_close(linear.silu(x), F.silu(y))
    torch.testing.assert_close(linear.add(x, other), y + other)
    torch.testing.assert_close(linear.mul(x, other), y * other)
    assert torch.equal(other, kept)


@pytest.mark.parametrize("packed_s", [0.5, 2.0])
def test_a_shape_is_tried_once_and_laid_out_as_was_faster(
    packed_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def seconds(product: object, matrices: list[torch.Tensor]) -> float:
        tried.append(matrices[0].shape)
        return packed_s if matrices[0].is_mkldnn else 1.0

    monkeypatch.setattr(projection, "_seconds", seconds)
    monkeypatch.setattr(projection, "_faster_packed", {})
    made = [Projection(torch.zeros(24, 16)) for _ in range(3)]
    assert [one._packed for one in made] == [packed_s < 1.0] * 3
    assert len(tried) == 2 * len(projection.TRIAL_ROWS)


def test_random_weights_are_seeded_and_keep_activations_near_one() -> None:
    shape = ModelShape(
        layers=12,
        heads=4,
        kv_heads=2,
        head_dim=16,
        hidden_size=64,
        intermediate_size=96,
        vocab_size=50,
        dtype="float32",
        context_length=99,
    )
    weights = [DecoderWeights.random(shape, seed) for seed in (1, 1, 2)]
    first, again, other = (w.embedding for w in weights)
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    x = torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    for layer in weights[0].layers:  # attention over one token is its value
        mixed = layer.qkv(F.rms_norm(x, (64,)))[:, -32:].repeat_interleave(2, 1)
        x = layer.mlp(F.rms_norm(x, (64,)), layer.output.add(mixed, x))
    assert 0.7 < x.std() < 2.5


@given(
    chunks=st.lists(st.integers(1, 5), min_size=1, max_size=20),
    born=st.integers(0, 9),
    head=st.integers(0, 6),
    tail=st.sampled_from([3, 8, EVERYTHING]),
)
def test_an_input_log_gives_back_what_it_promised_to_keep(
    chunks: list[int], born: int, head: int, tail: int
) -> None:
    log = InputLog(2, head=head, tail=tail, born=born, seed=4)
    at = born
    for n in chunks:
        log.append(torch.arange(at, at + n).float()[:, None].repeat(1, 2))
        at += n
    like = torch.empty(0)
    first = max(born, at - tail)
    assert log.rows(first, at, like)[:, 0].tolist() == list(range(first, at))
    early = log.rows(born, max(born, min(head, at)), like)
    assert early[:, 0].tolist() == list(range(born, max(born, min(head, at))))
    assert torch.equal(log.rows(0, born, like), log.rows(0, born, like))
    assert log.rows(0, born, like).shape == (born, 2)


def test_an_input_that_was_not_kept_is_missed() -> None:
    log = InputLog(2, head=1, tail=2, born=0, seed=0)
    for _ in range(10):
        log.append(torch.zeros(1, 2))
    with pytest.raises(LookupError, match="position 1"):
        log.rows(0, 10, torch.empty(0))
