"""Causal convolutions that carry their own context from frame to frame.

A convolution with kernel k (dilated to k') and stride s needs the k' - s columns before its input; a
transposed one with kernel k owes k - s columns to the frame after. Both keep exactly that, in their span
of the session's row, so that any cutting of the signal into whole frames gives the same output as the
whole signal at once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from metronome_cli.models.mimi.state import RowLayout
from metronome_cli.models.source import WeightSource


class Conv:
    """Causal convolution. Before the first frame its context is zeros, or the first column (`replicate`)."""

    def __init__(
        self,
        weights: WeightSource,
        layout: RowLayout,
        name: str,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        bias: bool = True,
        replicate: bool = False,
        gain: float = 1.0,
    ) -> None:
        into, out = channels
        self.weight = weights.tensor(f"{name}.weight", out, into, kernel, fan_in=into * kernel, gain=gain)
        self.bias = weights.tensor(f"{name}.bias", out, value=0.0) if bias else None
        self.stride = stride
        self.dilation = dilation
        self.replicate = replicate
        columns = (kernel - 1) * dilation + 1 - stride
        self.span = layout.take(into, columns) if columns else None

    def __call__(self, x: Tensor, rows: Tensor, fresh: Tensor) -> Tensor:
        """x: [batch, in, columns], columns a multiple of the stride -> [batch, out, columns / stride].

        rows: [batch, width], updated in place. fresh: [batch], the sessions whose first frame this is.
        """
        if self.span is not None:
            context = self.span.of(rows)
            before = torch.where(fresh[:, None, None], x[..., :1], context) if self.replicate else context
            x = torch.cat([before, x], dim=-1)
            context.copy_(x[..., -self.span.columns :])
        return F.conv1d(x, self.weight, self.bias, self.stride, 0, self.dilation)


class TransposedConv:
    """Causal transposed convolution: each column adds to the `kernel` columns that start at its own."""

    def __init__(
        self,
        weights: WeightSource,
        layout: RowLayout,
        name: str,
        channels: tuple[int, int],
        stride: int,
        *,
        groups: int = 1,
        bias: bool = True,
        gain: float = 1.0,
    ) -> None:
        into, out = channels
        fan_in = 2 * into // groups  # each output column is reached by two input columns
        self.weight = weights.tensor(
            f"{name}.weight", into, out // groups, 2 * stride, fan_in=fan_in, gain=gain
        )
        self.bias = weights.tensor(f"{name}.bias", out, value=0.0) if bias else None
        self.stride = stride
        self.groups = groups
        self.span = layout.take(out, stride)

    def __call__(self, x: Tensor, rows: Tensor, fresh: Tensor) -> Tensor:
        """x: [batch, in, columns] -> [batch, out, columns x stride]. rows: [batch, width], in place."""
        owed = self.span.of(rows)
        whole = F.conv_transpose1d(x, self.weight, None, self.stride, 0, 0, self.groups)
        whole[..., : self.stride] += owed
        owed.copy_(whole[..., -self.stride :])
        out = whole[..., : -self.stride]
        return out if self.bias is None else out + self.bias[:, None]
