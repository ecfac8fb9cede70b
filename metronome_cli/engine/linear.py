"""A weight matrix laid out for small batches: how a frame step multiplies.

On a CPU with oneDNN the matrix is packed into that library's blocked layout once, at load; a product of 1 to
64 rows then runs two to three times faster than from a plain matrix (`docs/design/packed-weights.md`), and
the residual sum or the activation rides on it. Elsewhere it stays plain: [in, out] on a CPU without oneDNN,
[out, in] on a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_PACKABLE = (torch.float32, torch.bfloat16)


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype in _PACKABLE
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and bool(torch.backends.mkldnn.enabled)
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


class Projection:
    """y = x W^T + b for rows x: [n, in]. Made from weight: [out, in], which need not be kept."""

    __slots__ = ("_bias", "_packed", "_weight", "in_features", "out_features")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        weight = weight.detach()
        self._bias = None if bias is None else bias.detach().clone()
        self._packed = _can_pack(weight)
        if self._packed:
            self._weight: Any = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
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
        return self._pointwise(x, "swish") if self._packed else F.silu(self._plain(x))

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
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, activation, [], "")
        return y

    def _binary(self, x: Tensor, other: Tensor, operation: str) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, self._weight, self._bias, operation)
        return y
