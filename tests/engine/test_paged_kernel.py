"""The Triton kernel, run by Triton's interpreter, equals the gathering attention over random lives of every policy."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.engine.attention import PagedAttention
from metronome_cli.engine.attention_span import AttentionSpan
from metronome_cli.engine.block_manager import BlockManager
from metronome_cli.engine.block_pool import BlockPool
from metronome_cli.engine.rotary import Rotary
from metronome_cli.engine.step_plan import StepPlanner
from metronome_cli.engine.step_table import FARTHEST, ROW_FIELDS, Field, StepTable, pack

pytest.importorskip("triton")  # interprets kernels in this process: see tests/conftest.py
from metronome_cli.engine import kernel_tiling, paged_kernel

POLICIES = (
    "unbounded",
    "window(40, 3)",
    "window(20, 0)",
    "window(33, 8)",
    "ring(30)",
    "ring(64)",
    "recycle(24)",
)


class Life:
    """Some sessions of one policy over a pool of random keys, which have been evicted and come back."""

    def __init__(self, policy: str, seed: int) -> None:
        rng = self.rng = random.Random(f"{policy} {seed}")
        torch.manual_seed(seed)
        self.kv_heads, self.group = rng.choice([1, 2]), rng.choice([1, 3, 4])
        self.dim, size = rng.choice([16, 24, 32]), rng.choice([4, 5, 16])
        self.batch, self.tokens = rng.randint(1, 3), rng.choice([1, 1, 2, 5])
        spec = CachePolicySpec.parse(policy)
        self.pool = BlockPool(
            layers=1, kv_heads=self.kv_heads, head_dim=self.dim, blocks=60 * self.batch, block_tokens=size
        )
        self.slots = BlockManager(self.pool, spec, chunk=self.tokens, keep_inputs=True, seed=seed)
        oldest = 90 if policy == "unbounded" else 200
        for slot in range(self.batch):
            self.slots.open(slot, rng.choice([0, 3, 17, oldest // 2, oldest]))
        self.pool.data.normal_()
        self.reach = AttentionSpan(
            self.slots.policy.sinks, self.slots.policy.window, rolling=rng.random() < 0.8
        )
        self.rotary = Rotary.plain(self.dim, 1e4)
        self.planner = StepPlanner(self.pool, self.group, self.rotary, self.reach)
        self.attention = PagedAttention(self.pool, self.kv_heads * self.group, self.dim**-0.5)

    def step(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(kernel's, gathered) attention of one forward's valid tokens; the sessions are older after it."""
        rng, tokens = self.rng, self.tokens
        counts = [rng.randint(1, tokens) for _ in range(self.batch)]
        if rng.random() < 0.3:  # a ring that comes back has lost its oldest, half overwritten block
            lost = rng.randrange(self.batch)
            self.slots.evict(lost)
            assert self.slots.restore(lost, tokens)
        assert all(self.slots.reserve(slot, tokens) for slot in range(self.batch))
        self.slots._pending.clear()
        tables = [self.slots._tables[slot] for slot in range(self.batch)]
        for table, count in zip(tables, counts, strict=True):
            table.turn(count)
        queries = torch.randn(self.batch * tokens, self.kv_heads * self.group, self.dim)
        wanted = self.attention.attend(0, queries, self.planner.plan(tables, counts, tokens))
        padded = self.batch + rng.choice([0, 2])
        table = StepTable.of(
            torch.from_numpy(pack(tables, counts, padded, tokens, self.reach)), padded, tokens
        )
        got = self._kernel(queries, table)
        for block_table, count in zip(tables, counts, strict=True):
            block_table.length += count
        valid = [row * tokens + i for row in range(self.batch) for i in range(counts[row])]
        return got[valid], wanted[valid]

    def _kernel(self, queries: torch.Tensor, table: StepTable) -> torch.Tensor:
        missing = table.batch * self.tokens - len(queries)
        queries = torch.cat((queries, queries.new_zeros(missing, *queries.shape[1:])))
        turn = None
        if self.reach.rolling and self.reach.sinks:
            shift = table.rows[:, Field.SHIFT].numpy()
            cos, sin = self.rotary.turns(-shift, torch.float32, torch.device("cpu"), scaled=False)
            turn = torch.cat((cos, sin), dim=1).contiguous()
        rows = self.rng.choice([16, 32])
        cut = kernel_tiling.Tiling(
            rows,
            self.rng.choice([16, 32]),
            -(-self.group * self.tokens // rows),
            self.rng.choice([1, 2, 5]),
            4,
        )
        return paged_kernel.attend(
            queries, self.pool.data[0, 0], self.pool.data[0, 1], table.rows, table.blocks, turn,
            tokens=self.tokens, scale=self.attention.scale, window=min(self.reach.window, FARTHEST),
            sinks=self.reach.sinks, cut=cut,
        )  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_the_kernel_equals_the_gathering_attention(policy: str) -> None:
    for seed in range(2):
        life = Life(policy, seed)
        for _ in range(2):
            got, wanted = life.step()
            torch.testing.assert_close(got, wanted, atol=2e-5, rtol=1e-4)


def test_what_the_table_does_not_name_is_never_read() -> None:
    life = Life("window(20, 0)", 4)
    held = {int(block) for slot in range(life.batch) for block in life.slots._tables[slot].ids}
    assert all(life.slots.reserve(slot, life.tokens) for slot in range(life.batch))
    held |= {int(block) for slot in range(life.batch) for block in life.slots._tables[slot].ids}
    rest = [block for block in range(1, life.pool.total + 1) if block not in held]
    life.pool.data[:, :, :, rest] = float("nan")
    life.rng.seed(3)  # no eviction in the next step, which would take other blocks
    got, _ = life.step()
    assert torch.isfinite(got).all()


def test_a_row_that_is_padding_attends_nothing() -> None:
    pool = BlockPool(layers=1, kv_heads=1, head_dim=16, blocks=2, block_tokens=4)
    table = StepTable.of(torch.from_numpy(pack([], [], 2, 1, AttentionSpan(0, 8, rolling=False))), 2, 1)
    out = paged_kernel.attend(
        torch.randn(2, 1, 16), pool.data[0, 0], pool.data[0, 1], table.rows, table.blocks, None,
        tokens=1, scale=1.0, window=8, sinks=0,
    )  # fmt: skip
    assert torch.equal(out, torch.zeros(2, 16))


def test_the_cut_depends_on_the_launch_alone_and_fills_a_device() -> None:
    for batch, kv_heads, group, tokens in ((1, 32, 1, 1), (32, 32, 1, 1), (1, 4, 7, 1), (4, 4, 7, 60)):
        cut = kernel_tiling.tiling(batch, kv_heads, group, tokens, 2)
        assert cut.tiles * cut.rows >= group * tokens
        assert batch * kv_heads * cut.tiles * cut.parts >= min(kernel_tiling.PROGRAMS // 2, 64)
    assert max(Field) < ROW_FIELDS


def test_it_compiles_for_the_gpus_in_use_without_spills(tmp_path: Path) -> None:
    script = Path(__file__).with_name("compile_kernel.py")
    own = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1"}
    run = subprocess.run(
        [sys.executable, str(script), "80", "89", "90", "120"],
        env=os.environ | own, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(rows) == 4 * 3
    for row in rows:
        assert row["spilled"] == 0, row
        assert row["shared"] <= (101_376 if row["capability"] in (89, 120) else 166_912), (
            row
        )  # a block's most
