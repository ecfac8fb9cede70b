"""Residual vector quantisation: one semantic level on its own, the acoustic levels one after another."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from metronome_cli.models.mimi.shape import MimiShape
from metronome_cli.models.weights.source import WeightSource

_USAGE_FLOOR = 1e-5  # a centroid is its sum over its usage, the usage at least this


class Quantizer:
    """Levels 0 (semantic) and 1.. (acoustic), of which the first `levels` are used."""

    def __init__(self, weights: WeightSource, shape: MimiShape, levels: int) -> None:
        self.shape = shape
        self.branches = [
            Branch(weights, "quantizer.semantic", shape, 1),
            Branch(weights, "quantizer.acoustic", shape, levels - 1),
        ]
        self._decoded = torch.cat([branch.decoded() for branch in self.branches])
        self._offsets = torch.arange(levels, device=weights.device) * shape.codebook_size

    def encode(self, latents: Tensor) -> Tensor:
        """latents: [n, hidden] -> codes [n, levels]."""
        return torch.cat([branch.encode(latents) for branch in self.branches], dim=1)

    def decode(self, codes: Tensor) -> Tensor:
        """codes: [n, levels] -> latents [n, hidden]: the sum of each level's projected centroid."""
        return F.embedding_bag(codes + self._offsets, self._decoded, mode="sum")


class Branch:
    """Some levels that share an input and an output projection."""

    def __init__(self, weights: WeightSource, name: str, shape: MimiShape, levels: int) -> None:
        dim, size = shape.codebook_dim, shape.codebook_size
        self.into = weights.tensor(f"{name}.input_proj", dim, shape.hidden)
        self.out = weights.tensor(f"{name}.output_proj", shape.hidden, dim)
        self.centroids = [_centroids(weights, f"{name}.{level}", size, dim, level) for level in range(levels)]
        self._square_norms = [c.square().sum(-1) for c in self.centroids]

    def encode(self, latents: Tensor) -> Tensor:
        """latents: [n, hidden] -> [n, levels]: nearest centroid of what the levels before left over."""
        residual = F.linear(latents, self.into)
        codes = []
        for centroids, norms in zip(self.centroids, self._square_norms, strict=True):
            # |r - c|^2 without |r|^2, which does not change the order
            code = torch.addmm(norms, residual, centroids.T, alpha=-2).argmin(-1)
            residual = residual - centroids[code]
            codes.append(code)
        return torch.stack(codes, dim=1)

    def decoded(self) -> Tensor:
        """[levels x size, hidden]: every centroid through the output projection."""
        return F.linear(torch.cat(self.centroids), self.out)


def _centroids(weights: WeightSource, name: str, size: int, dim: int, level: int) -> Tensor:
    """[size, dim]. Random: each level explains part of what those before it left, so deviations shrink."""
    sums = weights.tensor(f"{name}.sum", size, dim, fan_in=1, gain=0.8**level)
    usage = weights.tensor(f"{name}.usage", size, value=1.0)
    return sums / usage.clamp(min=_USAGE_FLOOR)[:, None]
