"""Forwards on a GPU: one small table in, and one launch if a graph was captured for that batch and tokens.

A graph replays fixed kernels on fixed addresses. What changes from frame to frame is in the table
(engine/step_table.py) and in the embeddings, which are copied to where the graph reads them. All graphs share
one memory pool and are captured at load, largest first; a forward that has none runs without. The batch is
padded to the next captured size: padding rows attend nothing and write to the scratch block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from metronome_cli.engine.block_table import BlockTable
from metronome_cli.engine.failures import as_engine_error
from metronome_cli.engine.step_table import TablePlan, TablePlanner, capacity
from metronome_cli.engine.transfer import to_device

LayerRun = Callable[[Tensor, TablePlan], Tensor]
WARM_UP_RUNS = 2  # before a capture: kernels are compiled and libraries make their workspaces
GRAPHED_TOKENS = 128  # a longer chunk keeps the device busy without a graph


def padded_size(count: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: at most a third is padding."""
    power = 1 << max(count - 1, 0).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


@contextmanager
def on_device(device: torch.device) -> Iterator[None]:
    """Makes a GPU the thread's current one, on which kernels are launched and graphs captured."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        yield


@dataclass(slots=True)
class _CapturedGraph:
    """embeds: [batch, tokens, hidden], what the graph reads; hidden: what it writes."""

    graph: torch.cuda.CUDAGraph
    embeds: Tensor
    hidden: Tensor


class TableRunner:
    """Runs a decoder's layers by table. `hidden_size` and `dtype` are those of its embeddings."""

    def __init__(self, layers: LayerRun, planner: TablePlanner, hidden_size: int, dtype: torch.dtype) -> None:
        self._layers = layers
        self._planner = planner
        self._hidden_size = hidden_size
        self._dtype = dtype
        self._graphs: dict[tuple[int, int], _CapturedGraph] = {}
        self._table = torch.empty(0, dtype=torch.int32, device=planner.device)
        self.capture_s = 0.0

    @property
    def captured(self) -> Sequence[tuple[int, int]]:
        """(batch, tokens) of every graph."""
        return list(self._graphs)

    def run(
        self, tables: Sequence[BlockTable], counts: Sequence[int], embeds: Tensor, *, every: bool = False
    ) -> Tensor:
        """Append counts[b] of the tokens of embeds, [B, T, hidden], to table b.

        Returns the final-normed state of each row's last token, [B, hidden], or of `every` token, [B T,
        hidden]. Raises IndexError if a table holds no block for a token.
        """
        rows, tokens = embeds.shape[:2]
        captured = None if every else self._graphs.get((padded_size(rows), tokens))
        if captured is None:
            flat = to_device(self._planner.pack(tables, counts, rows, tokens), self._planner.device)
            return self._layers(embeds, self._planner.plan(flat, rows, tokens, every=every))
        flat = to_device(
            self._planner.pack(tables, counts, len(captured.embeds), tokens), self._planner.device
        )
        self._table[: len(flat)].copy_(flat)
        captured.embeds[:rows].copy_(embeds)
        captured.graph.replay()
        return captured.hidden[:rows].clone()

    def capture(self, most: int, tokens: Sequence[int]) -> None:
        """Capture a graph for each size up to `most` rows and each number of tokens.

        Raises DeviceMemoryError if the device has no memory for them.
        """
        sizes = sorted({padded_size(count) for count in range(1, most + 1)}, reverse=True)
        wanted = sorted({count for count in tokens if 1 <= count <= GRAPHED_TOKENS}, reverse=True)
        if not sizes or not wanted or self._graphs:
            return
        began = time.perf_counter()
        try:
            with on_device(self._planner.device), torch.inference_mode():
                length = capacity(sizes[0], wanted[0], self._planner.pool.total)
                self._table = torch.zeros(length, dtype=torch.int32, device=self._planner.device)
                memory = torch.cuda.graph_pool_handle()
                for count in wanted:
                    for batch in sizes:
                        self._graphs[batch, count] = self._capture(batch, count, memory)
                torch.cuda.synchronize()
        except Exception as error:
            raise as_engine_error(error, "capturing CUDA graphs") from error
        self.capture_s = time.perf_counter() - began

    def _capture(self, batch: int, tokens: int, memory: object) -> _CapturedGraph:
        """On a table of padding alone, so that no session's cache is touched."""
        shape = (batch, tokens, self._hidden_size)
        embeds = torch.zeros(shape, dtype=self._dtype, device=self._planner.device)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_RUNS):
                self._forward(embeds)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=memory):  # type: ignore[arg-type]
            hidden = self._forward(embeds)
        return _CapturedGraph(graph, embeds, hidden)

    def _forward(self, embeds: Tensor) -> Tensor:
        return self._layers(embeds, self._planner.plan(self._table, *embeds.shape[:2]))
