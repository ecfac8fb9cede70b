"""The way of a GPU, run on a CPU by Triton's interpreter: tables, device-made plans and the kernel change nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.errors import DeviceMemoryError, EngineError
from metronome_cli.engine.attention_span import AttentionSpan
from metronome_cli.engine.block_pool import BlockPool
from metronome_cli.engine.build_decoder import LayerPath, build_decoder
from metronome_cli.engine.cuda_graphs import padded_size
from metronome_cli.engine.failures import as_engine_error, check_finite, checked_together
from metronome_cli.engine.paged_decoder import PagedDecoder
from metronome_cli.engine.rotary import Rotary
from metronome_cli.engine.step_table import Field, StepTable, TablePlanner, pack

from .decoders import assert_same, decoder, feed, stream

MODEL = decoder("qwen3")


def _stack(policy: str, way: LayerPath = "auto") -> PagedDecoder:
    spec = CachePolicySpec.parse(policy)
    return build_decoder(MODEL, blocks=60, block_tokens=4, policy=spec, poison=True, way=way)


@pytest.mark.parametrize("way", ["fast", "general"])
@pytest.mark.parametrize("policy", ["unbounded", "window(9, 3)", "ring(9)"])
def test_a_decoder_run_by_table_equals_the_gathering_one(policy: str, way: LayerPath) -> None:
    pytest.importorskip("triton")
    gathering, by_table = _stack(policy, way), _stack(policy, way)
    by_table.run_by_table()
    outputs = []
    for stack in (gathering, by_table):
        for slot, age in enumerate((0, 5, 27)):
            stack.open(slot, age)
        steps = [[stream(n, 10 * n + slot) for slot in range(3)] for n in (1, 3, 1)]
        outputs.append(torch.cat([feed(stack, range(3), chunks) for chunks in steps]))
    assert_same(outputs[1], outputs[0])


def test_every_state_of_a_chunk_comes_back_by_table_too() -> None:
    pytest.importorskip("triton")
    stacks = _stack("window(9, 3)"), _stack("window(9, 3)")
    stacks[1].run_by_table()
    states = []
    for stack in stacks:
        stack.open(0, 20)
        assert stack.reserve(0, 5)
        states.append(stack.states(0, stream(5, 1)))
    assert_same(states[1], states[0])


def test_angles_made_on_the_device_are_those_made_on_the_host() -> None:
    rotary = Rotary.plain(16, 1e4)
    pool = BlockPool(layers=1, kv_heads=1, head_dim=16, blocks=2, block_tokens=4)
    stack = _stack("window(9, 3)")
    stack.open(0, 1000)
    stack.reserve(0, 2)
    planner = TablePlanner(pool, rotary, AttentionSpan(3, 9, rolling=True))
    plan = planner.plan(torch.from_numpy(planner.pack([stack._tables[0]], [2], 1, 2)), 1, 2)
    cos, sin = rotary.turns(np.array([1000, 1001]), torch.float32, torch.device("cpu"))
    torch.testing.assert_close(plan.cos, cos, rtol=0, atol=1e-7)
    torch.testing.assert_close(plan.sin, sin, rtol=0, atol=1e-7)
    assert plan.last.tolist() == [1]
    assert plan.table.column(Field.SHIFT).tolist() == [1001 - 12]
    assert plan.turn is not None


def test_a_table_is_a_few_numbers_a_session_and_two_a_block() -> None:
    stack = _stack("window(40, 3)")
    for slot in range(3):
        stack.open(slot, 60)
        stack.reserve(slot, 1)
    tables = [stack._tables[slot] for slot in range(3)]
    flat = pack(tables, [1, 1, 1], 4, 1, stack.reach)
    assert flat.dtype == np.int32
    assert len(flat) <= 4 * 12 + 2 * sum(table.count for table in tables)
    table = StepTable.of(torch.from_numpy(flat), 4, 1)
    for row, block_table in enumerate(tables):
        entry, count = table.rows[row, :2].tolist()
        assert table.blocks[entry : entry + count, 0].tolist() == block_table.ids.tolist()
        assert table.writes[row] == block_table.rows(1)[0]
    assert table.rows[3].tolist() == [0] * 8  # padding attends nothing, and writes to the scratch block
    assert table.writes[3] == 0


def test_captured_sizes_are_few_and_pad_by_a_half_at_most() -> None:
    assert [padded_size(n) for n in range(1, 14)] == [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16]
    assert all(n <= padded_size(n) < 1.5 * n for n in range(1, 2000))
    assert len({padded_size(n) for n in range(1, 1025)}) == 20


def test_a_cpu_captures_nothing() -> None:
    stack = _stack("unbounded")
    stack.capture(8)
    assert "cuda_graphs" not in stack.describe()


def test_memory_that_ran_out_inside_a_capture_is_told_as_memory() -> None:
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        finally:  # as torch.cuda.graph does on the way out
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
    except RuntimeError as error:
        told = as_engine_error(error, "capturing CUDA graphs")
    assert isinstance(told, DeviceMemoryError)
    assert "2.00 GiB" in told.message


def test_a_check_on_a_cpu_is_made_at_once_inside_a_frame_too() -> None:
    with checked_together(), pytest.raises(EngineError, match="a state is not finite"):
        check_finite(torch.tensor([float("nan")]), "a state")
