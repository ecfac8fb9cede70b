"""The mixture's kernel, run by Triton's interpreter, equals each expert's own product; the GPU's sum repeats."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")  # interprets kernels in this process: see tests/conftest.py
from metronome_cli.engine import grouped_kernel
from metronome_cli.models.weights.experts import Experts, ExpertShape


@pytest.mark.parametrize("counts", [[0, 3, 0, 1], [20, 0, 0, 0], [5, 17, 1, 9]])
def test_each_row_is_multiplied_by_its_own_expert(counts: list[int]) -> None:
    torch.manual_seed(0)
    matrices, rows = torch.randn(4, 70, 24), torch.randn(sum(counts), 24)
    ends = torch.tensor(counts).cumsum(0, dtype=torch.int32)
    parts = torch.split(rows, counts)
    wanted = torch.cat([part @ matrix.T for part, matrix in zip(parts, matrices, strict=True)])
    torch.testing.assert_close(grouped_kernel.product(rows, matrices, ends), wanted, atol=1e-4, rtol=1e-4)


def test_the_way_of_a_gpu_equals_that_of_a_cpu() -> None:
    torch.manual_seed(1)
    shape = ExpertShape(count=6, per_token=2, mlp=10)
    experts = Experts(shape, torch.randn(6, 16), 0.3 * torch.randn(6, 20, 16), 0.3 * torch.randn(6, 16, 10))
    x = torch.randn(5, 16)
    weights, chosen = experts._route(x)
    by_kernel = experts.sorted(x, weights, chosen, grouped=True)
    torch.testing.assert_close(
        by_kernel, experts.sorted(x, weights, chosen, grouped=False), atol=1e-4, rtol=1e-4
    )
    assert torch.equal(by_kernel, experts.sorted(x, weights, chosen, grouped=True))
