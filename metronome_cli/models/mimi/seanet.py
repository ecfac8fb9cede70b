"""The convolutional halves of the codec: samples down to the inner rate, and up again.

Tensor names: `encoder.N...`, `decoder.N...`, N counted as published checkpoints do.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from metronome_cli.models.mimi.conv import Conv, TransposedConv
from metronome_cli.models.mimi.shape import MimiShape
from metronome_cli.models.mimi.state import RowLayout
from metronome_cli.models.weights.source import WeightSource

Step = Callable[[Tensor, Tensor, Tensor], Tensor]
_ELU_GAIN = 1.3  # keeps the variance of random weights through an ELU


class Residual:
    """x + conv1(elu(conv3(elu(x)))), the inner width `dim / compress`."""

    def __init__(
        self,
        weights: WeightSource,
        layout: RowLayout,
        name: str,
        *,
        dim: int,
        shape: MimiShape,
        dilation: int,
    ) -> None:
        inner = dim // shape.compress
        kernel = shape.residual_kernel
        self.first = Conv(
            weights, layout, f"{name}.first", (dim, inner), kernel, dilation=dilation, gain=_ELU_GAIN
        )
        self.second = Conv(weights, layout, f"{name}.second", (inner, dim), 1, gain=0.5)

    def __call__(self, x: Tensor, rows: Tensor, fresh: Tensor) -> Tensor:
        """x: [batch, columns, dim] -> the same shape."""
        inner = self.first(F.elu(x), rows, fresh)
        return self.second.plus(F.elu(inner, inplace=True), rows, fresh, x)


class Activated:
    """A step after an ELU, which is applied in place: nothing else reads its input."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def __call__(self, x: Tensor, rows: Tensor, fresh: Tensor) -> Tensor:
        return self.step(F.elu(x, inplace=True), rows, fresh)


def encoder(weights: WeightSource, layout: RowLayout, shape: MimiShape) -> list[Step]:
    """[batch, samples, 1] -> [batch, samples / hop, hidden], as a list of steps."""
    names = _Names("encoder")
    steps: list[Step] = [Conv(weights, layout, names.conv(), (1, shape.filters), shape.kernel)]
    dim = shape.filters
    for ratio in reversed(shape.ratios):
        steps += _residuals(weights, layout, names, dim, shape)
        names.skip()
        down = Conv(weights, layout, names.conv(), (dim, 2 * dim), 2 * ratio, stride=ratio, gain=_ELU_GAIN)
        steps.append(Activated(down))
        dim *= 2
    names.skip()
    last = Conv(weights, layout, names.conv(), (dim, shape.hidden), shape.last_kernel, gain=_ELU_GAIN)
    return [*steps, Activated(last)]


def decoder(weights: WeightSource, layout: RowLayout, shape: MimiShape) -> list[Step]:
    """[batch, columns, hidden] -> [batch, columns x hop, 1], as a list of steps."""
    names = _Names("decoder")
    dim = shape.filters * 2 ** len(shape.ratios)
    steps: list[Step] = [Conv(weights, layout, names.conv(), (shape.hidden, dim), shape.kernel)]
    for ratio in shape.ratios:
        names.skip()
        up = TransposedConv(weights, layout, f"{names.conv()}.up", (dim, dim // 2), ratio, gain=_ELU_GAIN)
        steps.append(Activated(up))
        dim //= 2
        steps += _residuals(weights, layout, names, dim, shape)
    names.skip()
    last = Conv(weights, layout, names.conv(), (dim, 1), shape.last_kernel, gain=0.3)
    return [*steps, Activated(last)]


def run(steps: list[Step], x: Tensor, rows: Tensor, fresh: Tensor) -> Tensor:
    """All steps in turn on one frame of a batch."""
    for step in steps:
        x = step(x, rows, fresh)
    return x


def _residuals(
    weights: WeightSource, layout: RowLayout, names: _Names, dim: int, shape: MimiShape
) -> list[Step]:
    dilations = [shape.dilation_growth**j for j in range(shape.residual_layers)]
    return [
        Residual(weights, layout, names.block(), dim=dim, shape=shape, dilation=dilation)
        for dilation in dilations
    ]


class _Names:
    """Numbers the layers as the published checkpoints do, activations counted."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.index = 0

    def skip(self) -> None:
        self.index += 1

    def block(self) -> str:
        self.index += 1
        return f"{self.part}.{self.index - 1}"

    def conv(self) -> str:
        return self.block()
