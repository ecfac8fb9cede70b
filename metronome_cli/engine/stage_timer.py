"""Seconds spent in each stage of one step.

From entering a stage's block to leaving it, monotonic clock; on CUDA the device is synchronised at both ends,
so queued work counts where it was asked for. Time between stages belongs to none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


class StageStopwatch:
    """A `engine.interface.StageTimer`. A stage entered several times adds up."""

    def __init__(self, stages: Iterable[str], device: torch.device) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(stages, 0.0)
        self._device = device

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = self._now()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + self._now() - start

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
