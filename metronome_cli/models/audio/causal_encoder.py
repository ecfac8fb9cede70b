"""A small causal audio encoder: samples of a frame in, embeddings for a decoder out, batched over any
sessions.

    log-mel (100 a second) -> stem: each position sees its own features and as many before them
    -> blocks: causal depthwise convolution over the last 8 positions, gated MLP, residual
    -> RMS norm -> the decoder's width

All of a session's past is one flat row of numbers (`state_width`), zeros when it opens: the same as silence
that never was, so sessions of any ages share a batch. One call over a whole recording equals one call a
frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from metronome_cli.engine.projection import Projection
from metronome_cli.models.audio.log_mel import CausalLogMel
from metronome_cli.models.weights.source import RandomSource

REACH = 8  # positions that a block's convolution sees, its own included
_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class CausalEncoderShape:
    """`stride` features make one position; `width` inside, `hidden` out."""

    hidden: int
    stride: int
    width: int = 256
    blocks: int = 2
    mels: int = 80


class _Block:
    """x + MLP(norm(convolution(x)))."""

    def __init__(self, name: str, width: int, weights: RandomSource) -> None:
        self._taps = weights.tensor(f"{name}.taps", width, REACH)
        self._gate = Projection(weights.tensor(f"{name}.gate", 2 * width, width))
        self._up = Projection(weights.tensor(f"{name}.up", 2 * width, width))
        self._down = Projection(weights.tensor(f"{name}.down", width, 2 * width))

    def __call__(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """x: [batch, positions, width]; past: [batch, REACH - 1, width], the inputs before it, returned
        anew."""
        seen = torch.cat((past, x), dim=1)
        mixed = (seen.unfold(1, REACH, 1) * self._taps).sum(dim=3)
        rows = _rms_norm(mixed).flatten(0, 1)
        out = self._down.add(self._up.mul(rows, self._gate.silu(rows)), x.flatten(0, 1))
        return out.view_as(x), seen[:, x.shape[1] :]


class CausalEncoder:
    """Stateless itself: `step` takes every session's past and gives it back."""

    def __init__(self, sample_rate: int, shape: CausalEncoderShape, weights: RandomSource) -> None:
        self.features = CausalLogMel(sample_rate, shape.mels, weights.device)
        self.shape = shape
        width = shape.width
        self._stem = Projection(weights.tensor("encoder.stem", width, 2 * shape.stride * shape.mels))
        self._blocks = [_Block(f"encoder.blocks.{i}", width, weights) for i in range(shape.blocks)]
        self._out = Projection(weights.tensor("encoder.out", shape.hidden, width))
        self._parts = [self.features.history, shape.stride * shape.mels]
        self._parts += [(REACH - 1) * width] * shape.blocks

    @property
    def samples_per_position(self) -> int:
        return self.shape.stride * self.features.hop

    @property
    def state_width(self) -> int:
        """Numbers that one session keeps."""
        return sum(self._parts)

    def step(self, state: Tensor, audio: Tensor) -> tuple[Tensor, Tensor]:
        """One more stretch of audio of each session.

        state: [batch, state_width]; audio: [batch, n x samples_per_position] -> [batch, n, hidden] embeddings
        of about unit size, and the new state.
        """
        samples, features, *pasts = torch.split(state, self._parts, dim=1)
        samples = torch.cat((samples, audio), dim=1)
        heard = self.features(samples)
        features = torch.cat((features, heard.flatten(1)), dim=1)
        x, kept = self._start(features), []
        for block, past in zip(self._blocks, pasts, strict=True):
            x, after = block(x, past.view(len(past), REACH - 1, -1))
            kept.append(after.flatten(1))
        out = self._out(_rms_norm(x).flatten(0, 1)).view(*x.shape[:2], -1)
        ends = [samples[:, -self._parts[0] :], features[:, -self._parts[1] :]]
        return out, torch.cat((*ends, *kept), dim=1)

    def _start(self, features: Tensor) -> Tensor:
        """features: [batch, (1 + n) x stride x mels] -> [batch, n, width]."""
        step = self._parts[1]
        pairs = features.unfold(1, 2 * step, step)
        return self._stem.silu(pairs.flatten(0, 1)).view(*pairs.shape[:2], -1)


def _rms_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + _EPS)
