"""Attention where the blocks lie: the same as gathering them, and only over what has been written."""

from __future__ import annotations

import pytest
import torch

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.engine import step_plan as plans
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.paged_decoder import PagedDecoder
from metronome_cli.engine.step_plan import StepPlan

from .decoders import assert_same, decoder, feed, stream
from .reference import llama_hidden, union

GROUPED = decoder("llama")  # three query heads a KV head
NARROW = decoder("moshi")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[StepPlan]:
    """Every plan that is made, and no session too short to be attended in place."""
    monkeypatch.setattr(plans, "SPAN_BYTES", 1)
    seen: list[StepPlan] = []
    plan = plans.StepPlanner.plan

    def noted(self: plans.StepPlanner, *args: object, **kwargs: object) -> StepPlan:
        seen.append(plan(self, *args, **kwargs))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(plans.StepPlanner, "plan", noted)
    return seen


def stack(model: object, policy: str, *, slots: int, blocks: int = 40, chunk: int = 1) -> PagedDecoder:
    out = build_decoder(
        model, policy=CachePolicySpec.parse(policy), blocks=blocks, block_tokens=4, chunk=chunk, poison=True
    )
    for slot in range(slots):
        out.open(slot)
    return out


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("window", [8, 13, 30])
def test_a_ring_in_place_is_the_window_mask_young_full_and_turned(
    made: list[StepPlan], window: int, chunk: int
) -> None:
    talk = stream(48, seed=window)
    ring = stack(GROUPED, f"ring({window})", slots=1, chunk=chunk)
    hidden = [feed(ring, [0], [talk[at : at + chunk]]) for at in range(0, 48, chunk)]
    expected = llama_hidden(GROUPED, talk, union(window - 1, 0))
    assert_same(torch.cat(hidden), expected[chunk - 1 :: chunk])
    assert all(plan.spans is not None for plan in made)


def test_sessions_of_different_ages_in_place_equal_each_alone(made: list[StepPlan]) -> None:
    talks = [stream(30, seed) for seed in (1, 2, 3)]
    together = stack(NARROW, "ring(9)", slots=3)
    got: list[list[torch.Tensor]] = [[], [], []]
    for at in range(30):
        slots = [slot for slot in (2, 0, 1) if at >= 5 * slot]
        hidden = feed(together, slots, [talks[slot][at - 5 * slot][None] for slot in slots])
        for slot, row in zip(slots, hidden, strict=True):
            got[slot].append(row)
    assert all(plan.spans is not None for plan in made)
    for slot, talk in enumerate(talks):
        alone = stack(NARROW, "ring(9)", slots=1)
        expected = [feed(alone, [0], [row[None]])[0] for row in talk[: len(got[slot])]]
        assert_same(torch.stack(got[slot]), torch.stack(expected))


def test_blocks_that_do_not_lie_side_by_side_are_gathered(made: list[StepPlan]) -> None:
    """Two sessions that grow by turns take every other block."""
    talks = [stream(20, seed) for seed in (4, 5)]
    grown = stack(NARROW, "unbounded", slots=2)
    hidden = [feed(grown, [0, 1], [talk[at][None] for talk in talks]) for at in range(20)]
    assert made[0].spans is not None
    assert made[-1].spans is None
    for slot, talk in enumerate(talks):
        alone = stack(NARROW, "unbounded", slots=1)
        assert_same(hidden[-1][slot], [feed(alone, [0], [row[None]])[0] for row in talk][-1])


def test_sinks_are_gathered(made: list[StepPlan]) -> None:
    one = stack(NARROW, "window(8, 2)", slots=1)
    feed(one, [0], [stream(6, 1)])
    assert made[-1].spans is None


@pytest.mark.parametrize("in_place", [True, False])
def test_a_young_ring_reads_what_it_holds_and_not_what_it_could(
    made: list[StepPlan], in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_place:
        monkeypatch.setattr(plans, "SPAN_BYTES", 1 << 40)
    ring = stack(NARROW, "ring(64)", slots=2)
    read = []
    for at in range(70):
        feed(ring, [0, 1], [stream(70, 1)[at][None], stream(70, 2)[at][None]])
        assert (made[-1].spans is not None) == in_place
        read.append(made[-1].bias.shape[-1])
    assert read == [min(4 * (at // 4 + 1), 64) for at in range(70)]
    assert ring.blocks_held(0) == 16  # reserved all the same
