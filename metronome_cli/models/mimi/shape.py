"""The sizes of a Mimi codec. The defaults are those of the published one, kyutai/mimi (12.5 frames/s)."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MimiShape:
    """Encoder and decoder mirror each other. `context` counts positions at the inner rate (25 Hz)."""

    sample_rate: int = 24_000
    filters: int = 64  # channels after the first convolution; doubled at each ratio
    hidden: int = 512
    ratios: tuple[int, ...] = (8, 6, 5, 4)  # in the decoder's order
    kernel: int = 7
    last_kernel: int = 3
    residual_kernel: int = 3
    residual_layers: int = 1
    dilation_growth: int = 2
    compress: int = 2
    layers: int = 8
    heads: int = 8
    mlp: int = 2048
    context: int = 250
    rope_theta: float = 10_000.0
    stored_codebooks: int = 32  # levels in a checkpoint, of which a model uses the first few
    codebook_size: int = 2048
    codebook_dim: int = 256
    stride: int = 2  # inner positions a frame

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def hop(self) -> int:
        """Samples a position of the inner rate."""
        return math.prod(self.ratios)

    @property
    def frame_samples(self) -> int:
        """Samples a frame (1920 as shipped)."""
        return self.hop * self.stride

    @property
    def kv_bytes_per_position(self) -> int:
        """Keys and values of one inner position in one of the two transformers, float32."""
        return 2 * self.layers * self.hidden * 4
