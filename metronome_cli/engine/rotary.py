"""Rotary position angles, in float64 until the last moment.

A long-lived session's positions outgrow float32: at position 10^6 the spacing of float32 is 0.06 rad for the
fastest pair. Angles are therefore formed and reduced in float64; only their cosine and sine are cast.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Float64 = npt.NDArray[np.float64]


class Rotary:
    """Rotation of head vectors by position, in the half-split form that `transformers` decoders use.

    inv_freq: [head_dim / 2] angles a position, float64. `scaling` multiplies cosine and sine (YaRN's factor).
    """

    def __init__(self, inv_freq: Float64, scaling: float = 1.0) -> None:
        self.inv_freq = np.asarray(inv_freq, dtype=np.float64)
        self.scaling = scaling

    @classmethod
    def plain(cls, head_dim: int, theta: float) -> Rotary:
        """theta ** (-2 i / head_dim) for pair i (RoFormer, arXiv:2104.09864)."""
        return cls(theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim))

    def turns(
        self,
        positions: npt.NDArray[np.int64],
        dtype: torch.dtype,
        device: torch.device,
        *,
        scaled: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine for `rotate`, [n, 1, head_dim] each, of flat positions [n]."""
        angles = positions[:, None] * self.inv_freq
        scale = self.scaling if scaled else 1.0
        cos, sin = np.cos(angles) * scale, np.sin(angles) * scale
        table = np.concatenate((cos, cos, -sin, sin), axis=1).astype(np.float32)
        both = torch.from_numpy(table).to(device=device, dtype=dtype).unsqueeze(1)
        return both[..., : 2 * cos.shape[1]], both[..., 2 * cos.shape[1] :]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: [n, heads, head_dim], cos and signed sin: [n, 1, head_dim]."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
