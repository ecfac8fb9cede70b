"""Seconds spent in each stage of one step.

From entering a stage's block to leaving it. On a CPU: the monotonic clock. On CUDA: events on the current
stream, so that nothing waits between stages; the device is waited for once, when `seconds` is read. A stage's
time includes what the host made the device wait for. Time between stages belongs to none. Known error: 0.5 us,
the resolution of a CUDA event.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


class StageStopwatch:
    """A `engine.interface.StageTimer`. A stage entered several times adds up."""

    def __init__(self, stages: Iterable[str], device: torch.device) -> None:
        self._seconds: dict[str, float] = dict.fromkeys(stages, 0.0)
        self._on_cuda = device.type == "cuda"
        self._marks: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        if self._on_cuda:
            began = _mark()
            try:
                yield
            finally:
                self._marks.append((stage, began, _mark()))
            return
        start = time.perf_counter()
        try:
            yield
        finally:
            self._add(stage, time.perf_counter() - start)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage. Waits for the device if it is a GPU."""
        for stage, began, ended in self._marks:
            ended.synchronize()
            self._add(stage, began.elapsed_time(ended) / 1e3)
        self._marks.clear()
        return self._seconds

    def _add(self, stage: str, seconds: float) -> None:
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds


def _mark() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
