"""What this device can do at best, measured now: bytes a second and operations a second.

Bandwidth: a matrix far larger than any cache is read once, by a product with one vector (gemv), as a decode step at
batch 1 does, and by a plain sum, which on processors is nearer to what memory gives; bytes of the matrix / the fastest
of several repeats of either. Compute: a square matrix product (gemm), 2 n^3 operations / the fastest repeat. The
fastest is taken because a limit is what was reached once. Left out: transfers to the device, kernels' start
(negligible at these sizes). Known error: on a shared machine both read low; `best` of two looks helps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

GEMV_BYTES = 192 * 2**20
GEMM_SIZE = 1024
REPEATS = 5


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """Measured peaks of one device in one dtype."""

    device: str
    dtype: str
    bytes_per_s: float
    flops_per_s: float

    def floor_s(self, bytes_read: float, flops: float) -> float:
        """The least time in which that much can be read and computed, whichever takes longer."""
        return max(bytes_read / self.bytes_per_s, flops / self.flops_per_s)

    def best(self, other: DevicePeaks) -> DevicePeaks:
        """What was reached in either of two looks at the same device."""
        return replace(
            self,
            bytes_per_s=max(self.bytes_per_s, other.bytes_per_s),
            flops_per_s=max(self.flops_per_s, other.flops_per_s),
        )


def measure_limits(device: torch.device, dtype: torch.dtype) -> DevicePeaks:
    """Takes about a second."""
    on_cuda = device.type == "cuda"
    columns = 4096
    rows = (8 if on_cuda else 1) * GEMV_BYTES // (columns * dtype.itemsize)
    size = GEMM_SIZE * (8 if on_cuda else 1)
    with torch.inference_mode():
        matrix = torch.ones(rows, columns, device=device, dtype=dtype)
        vector = torch.ones(columns, device=device, dtype=dtype)
        read_s = min(_fastest(lambda: torch.mv(matrix, vector), device), _fastest(matrix.sum, device))
        square = torch.ones(size, size, device=device, dtype=dtype)
        product_s = _fastest(lambda: torch.mm(square, square), device)
    return DevicePeaks(
        device=str(device),
        dtype=str(dtype).removeprefix("torch."),
        bytes_per_s=matrix.numel() * dtype.itemsize / read_s,
        flops_per_s=2 * size**3 / product_s,
    )


def _fastest(work: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return min(times[1:])
