"""Causal convolutions as matrix products, each with the context it carries from frame to frame.

A convolution with kernel k (dilated to k') and stride s needs the k' - s columns before its input; a
transposed one with kernel 2 s owes its second half to the column after. Both keep exactly that, in their span
of the session's row, so that any cutting of the signal into whole frames gives the same output as the
whole signal at once.

Channels come last, [batch, columns, channels], so that a window of columns is one row of a matrix and the
columns that a transposed convolution makes of one lie side by side: either is a product with a packed
matrix, which a CPU does several times faster than a convolution of so few channels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metronome_cli.engine.projection import Projection
from metronome_cli.models.mimi.state import RowLayout
from metronome_cli.models.weights.source import WeightSource


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
        weight = weights.tensor(f"{name}.weight", out, into, kernel, fan_in=into * kernel, gain=gain)
        offset = weights.tensor(f"{name}.bias", out, value=0.0) if bias else None
        self._product = Projection(weight.transpose(1, 2).flatten(1), offset)
        self._kernel = kernel
        self._stride = stride
        self._dilation = dilation
        self._replicate = replicate
        context = (kernel - 1) * dilation + 1 - stride
        self._span = layout.take(context, into) if context else None

    def __call__(self, x: Tensor, rows: Tensor, fresh: Tensor) -> Tensor:
        """x: [batch, columns, in], columns a multiple of the stride -> [batch, columns / stride, out].

        rows: [batch, width], updated in place. fresh: [batch], the sessions whose first frame this is.
        """
        windows = self._windows(x, rows, fresh)
        return self._product(windows).view(x.shape[0], -1, self._product.out_features)

    def plus(self, x: Tensor, rows: Tensor, fresh: Tensor, other: Tensor) -> Tensor:
        """The same, plus `other`: [batch, columns / stride, out]."""
        windows = self._windows(x, rows, fresh)
        return self._product.add(windows, other.flatten(0, 1)).view(other.shape)

    def _windows(self, x: Tensor, rows: Tensor, fresh: Tensor) -> Tensor:
        """[batch x columns / stride, kernel x in]: what each output column is made of."""
        if self._span is None:
            return x.reshape(-1, x.shape[2])
        context = self._span.of(rows)
        before = torch.where(fresh[:, None, None], x[:, :1], context) if self._replicate else context
        whole = torch.cat([before, x], dim=1)
        context.copy_(whole[:, x.shape[1] :])
        batch, columns, channels = whole.shape
        windows = whole.as_strided(
            (batch, x.shape[1] // self._stride, self._kernel, channels),
            (columns * channels, self._stride * channels, self._dilation * channels, 1),
        )
        return windows.reshape(-1, self._kernel * channels)


class TransposedConv:
    """Causal transposed convolution of kernel 2 x stride: a column adds to its own columns and the next's."""

    def __init__(
        self,
        weights: WeightSource,
        layout: RowLayout,
        name: str,
        channels: tuple[int, int],
        stride: int,
        *,
        gain: float = 1.0,
    ) -> None:
        into, out = channels
        # each output column is reached by two input columns
        weight = weights.tensor(f"{name}.weight", into, out, 2 * stride, fan_in=2 * into, gain=gain)
        self._product = Projection(weight.permute(2, 1, 0).flatten(0, 1))
        self._bias = weights.tensor(f"{name}.bias", out, value=0.0)
        self._stride = stride
        self._span = layout.take(stride, out)

    def __call__(self, x: Tensor, rows: Tensor, fresh: Tensor) -> Tensor:
        """x: [batch, columns, in] -> [batch, columns x stride, out]. rows: [batch, width], in place."""
        batch, columns = x.shape[:2]
        halves = self._product(x.reshape(-1, x.shape[2])).view(batch, columns, 2, self._stride, -1)
        return _overlapped(halves, self._span.of(rows)) + self._bias


class ChannelUpsample:
    """A transposed convolution of each channel by itself, without bias."""

    def __init__(
        self, weights: WeightSource, layout: RowLayout, name: str, channels: int, stride: int
    ) -> None:
        weight = weights.tensor(f"{name}.weight", channels, 1, 2 * stride, fan_in=2)
        self.stride = stride
        self._weight = weight[:, 0].T.reshape(2, stride, channels)
        self._span = layout.take(stride, channels)

    def __call__(self, x: Tensor, rows: Tensor, fresh: Tensor) -> Tensor:
        """x: [batch, columns, channels] -> [batch, columns x stride, channels]."""
        return _overlapped(x[:, :, None, None] * self._weight, self._span.of(rows))


def _overlapped(halves: Tensor, owed: Tensor) -> Tensor:
    """halves: [batch, columns, 2, stride, out], what each column adds to its own columns and to the next
    one's; owed: [batch, stride, out], due from the frame before and left for the frame after.
    """
    whole, late = halves.unbind(2)
    out = whole.clone(memory_format=torch.contiguous_format)
    out[:, 0] += owed
    out[:, 1:] += late[:, :-1]
    owed.copy_(late[:, -1])
    return out.flatten(1, 2)
