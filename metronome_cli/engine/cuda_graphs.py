"""CUDA graphs of the fast way: one launch a step instead of some twenty a layer.

A graph replays fixed kernels on fixed addresses. So a plan is padded to a bucket of batch and blocks (padding
writes to the scratch block and reads it), its tensors are copied into the bucket's own, and the captured
graph runs on those. The pool's tensor never moves. Runs on a CPU never come here: `FastLayers` makes no
`StepGraphs` for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from metronome_cli.engine.step_plan import StepPlan

LayerRun = Callable[[Tensor, StepPlan], Tensor]
WARM_UP_RUNS = 3


def padded_size(count: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: at most a third is padding."""
    power = 1 << max(count - 1, 0).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


@dataclass(slots=True)
class _CapturedGraph:
    """One bucket's graph, the tensors it reads, and what it writes. kept: buffers that it must outlive."""

    embeds: Tensor
    plan: StepPlan
    graph: torch.cuda.CUDAGraph
    hidden: Tensor
    kept: Tensor


class CudaGraphRunner:
    """Captures `run` once for each bucket and replays it. `scratch` names the buffer that `run` uses."""

    def __init__(self, run: LayerRun, scratch: Callable[[], Tensor]) -> None:
        self._run = run
        self._scratch = scratch
        self._captured: dict[tuple[int, int, int, bool], _CapturedGraph] = {}

    def run(self, embeds: Tensor, plan: StepPlan) -> Tensor:
        """embeds: [B, T, hidden] of a plan that is padded to its bucket -> [B, hidden]."""
        key = (plan.batch, plan.tokens, plan.blocks, plan.turn is not None)
        captured = self._captured.get(key)
        if captured is None:
            captured = self._captured[key] = self._capture(embeds, plan)
        captured.embeds.copy_(embeds)
        load(captured.plan, plan)
        captured.graph.replay()
        return captured.hidden.clone()

    def _capture(self, embeds: Tensor, plan: StepPlan) -> _CapturedGraph:
        """Warming up and capturing write the same rows as the step itself will: the pool is none the worse."""
        own_embeds, own_plan = embeds.clone(), copied(plan)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_RUNS):
                self._run(own_embeds, own_plan)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            hidden = self._run(own_embeds, own_plan)
        return _CapturedGraph(own_embeds, own_plan, graph, hidden, self._scratch())


def copied(plan: StepPlan) -> StepPlan:
    """The plan on tensors of its own."""
    return replace(plan, turn=_pair(plan.turn), **{name: getattr(plan, name).clone() for name in TENSORS})


def load(into: StepPlan, plan: StepPlan) -> None:
    """Copy a plan's tensors into another plan of the same bucket."""
    for name in TENSORS:
        getattr(into, name).copy_(getattr(plan, name))
    if into.turn is not None and plan.turn is not None:
        for own, new in zip(into.turn, plan.turn, strict=True):
            own.copy_(new)


def _pair(turn: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
    return None if turn is None else (turn[0].clone(), turn[1].clone())


TENSORS = tuple(field.name for field in fields(StepPlan) if field.type == "Tensor")
