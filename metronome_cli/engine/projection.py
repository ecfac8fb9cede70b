"""Weight matrices in the layout that is fastest for the small batches of a frame step.

On a CPU there are two layouts to choose from: oneDNN's own blocked one, into which the matrix is packed once, at load,
with the residual sum or the activation fused into the product; and a plain [in, out]. Which is faster, by up to three
times, depends on the processor and on the shape (`docs/design/packed-weights.md`), so both are timed, once a shape and
process. On a GPU a matrix stays [out, in].
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_PACKABLE = (torch.float32, torch.bfloat16)
TRIAL_ROWS = (8, 32)  # sessions that a step serves at once
TRIAL_BYTES = 16 << 20  # more than a CPU cache holds: a step uses all other matrices in between
TRIAL_COPIES = 32  # of a small one
TRIALS = 2


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype in _PACKABLE
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and bool(torch.backends.mkldnn.enabled)
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


_faster_packed: dict[tuple[torch.Size, torch.dtype], bool] = {}


def _packs(weight: Tensor) -> bool:
    """Whether products with a matrix of this shape are faster from the packed layout, over the rows of a step."""
    if not _can_pack(weight):
        return False
    kind = (weight.shape, weight.dtype)
    if kind not in _faster_packed:
        _faster_packed[kind] = _ratio_of_trials(weight) < 1.0
    return _faster_packed[kind]


def _ratio_of_trials(weight: Tensor) -> float:
    """Seconds with packed matrices over seconds with plain ones, multiplied over the rows that are tried."""
    copies = min(TRIAL_COPIES, max(1, TRIAL_BYTES // weight.nbytes))
    packed = [_pack(weight) for _ in range(copies)]
    plain = [weight.t().contiguous() for _ in range(copies)]
    ratio = 1.0
    for rows in TRIAL_ROWS:
        x = torch.zeros(rows, weight.shape[1], dtype=weight.dtype)
        ratio *= _seconds(partial(_pointwise, x, bias=None, activation="none"), packed)
        ratio /= _seconds(partial(torch.mm, x), plain)
    return ratio


def _seconds(product: Callable[[Any], Tensor], matrices: Sequence[Any]) -> float:
    """Of one round through the matrices, the fastest of a few, which other work on the machine disturbs least."""
    taken = []
    for _ in range(1 + TRIALS):  # the first makes its primitive
        began = time.perf_counter()
        for matrix in matrices:
            product(matrix)
        taken.append(time.perf_counter() - began)
    return min(taken[1:])


def _pack(weight: Tensor) -> Any:
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)


def _pointwise(x: Tensor, packed: Any, bias: Tensor | None, activation: str) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, activation, [], "")
    return y


class Projection:
    """y = x W^T + b for rows x: [n, in]. Made from weight: [out, in], which need not be kept."""

    __slots__ = ("_bias", "_packed", "_weight", "in_features", "out_features")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        weight = weight.detach()
        self._bias = None if bias is None else bias.detach().clone()
        self._packed = _packs(weight)
        if self._packed:
            self._weight: Any = _pack(weight)
        elif weight.device.type == "cpu":
            self._weight = weight.t().contiguous()
        else:
            self._weight = weight.clone()

    def __call__(self, x: Tensor) -> Tensor:
        """x: [n, in] -> [n, out]."""
        if self._packed:
            return self._pointwise(x, "none")
        return self._plain(x)

    def silu(self, x: Tensor) -> Tensor:
        """SiLU of the product: [n, out]."""
        return self._pointwise(x, "swish") if self._packed else F.silu(self._plain(x), inplace=True)

    def add(self, x: Tensor, other: Tensor) -> Tensor:
        """The product plus `other`: [n, out]."""
        return self._binary(x, other, "add") if self._packed else self._plain(x).add_(other)

    def mul(self, x: Tensor, other: Tensor) -> Tensor:
        """The product times `other`: [n, out]."""
        return self._binary(x, other, "mul") if self._packed else self._plain(x).mul_(other)

    def _plain(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu":
            return F.linear(x, self._weight, self._bias)
        if self._bias is None:
            return torch.mm(x, self._weight)
        return torch.addmm(self._bias, x, self._weight)

    def _pointwise(self, x: Tensor, activation: str) -> Tensor:
        return _pointwise(x, self._weight, self._bias, activation)

    def _binary(self, x: Tensor, other: Tensor, operation: str) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, self._weight, self._bias, operation)
        return y
