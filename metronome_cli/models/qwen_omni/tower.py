"""Qwen-Omni's audio towers: log-mel frames of one chunk in, embeddings for the thinker out.

Qwen2.5: blocks of 200 frames (2 s). Convolution, positions and attention stay inside a block, so encoding a
stream block by block is exact. Qwen3: convolution blocks of 100 frames, and attention over 800 frames (8 s)
in both directions. A chunk shorter than 8 s is attended alone, which is another computation than encoding
the whole utterance, not an approximation of it; only chunks of whole 8 s windows are exact.

Both towers carry the tensor names of the published checkpoints, and hold no state of a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metronome_cli.models.audio.encoder_layers import EncoderLayer, sinusoids

Family = Literal["qwen2.5", "qwen3"]
MAX_POSITIONS = 1500


@dataclass(frozen=True, slots=True)
class TowerShape:
    """Sizes of a tower. `mels` bins in, `out` wide embeddings out; `conv` is Qwen3's convolution width."""

    mels: int = 128
    layers: int = 32
    width: int = 1280
    heads: int = 20
    mlp: int = 5120
    out: int = 3584
    conv: int = 480


def tokens_of(family: Family, frames: int) -> int:
    """Embeddings that `frames` mel frames give, encoded as one utterance.

    Qwen2.5 halves twice, over the whole: floor(ceil(L / 2) / 2). Qwen3 halves three times in each 100.
    """
    if family == "qwen2.5":
        return ((frames + 1) // 2) // 2
    return 13 * (frames // 100) + -(-(frames % 100) // 8)


class AudioTower25(nn.Module):
    """Qwen2.5-Omni's tower."""

    block = 200  # mel frames

    def __init__(self, shape: TowerShape) -> None:
        super().__init__()
        self.shape = shape
        self.conv1 = nn.Conv1d(shape.mels, shape.width, 3, padding=1)
        self.conv2 = nn.Conv1d(shape.width, shape.width, 3, stride=2, padding=1)
        self.audio_bos_eos_token = nn.Embedding(2, shape.out)  # in the checkpoint, read by nothing
        self.layers = nn.ModuleList(
            EncoderLayer(shape.width, shape.heads, shape.mlp) for _ in range(shape.layers)
        )
        self.ln_post = nn.LayerNorm(shape.width)
        self.proj = nn.Linear(shape.width, shape.out)
        self.positions = sinusoids(self.block // 2, shape.width)

    def forward(self, mel: Tensor) -> Tensor:
        """mel: [batch, mels, frames], all of one length. Returns [batch, tokens, out]."""
        blocks = [self._block(part) for part in torch.split(mel, self.block, dim=2)]
        x = torch.cat(blocks, dim=1)  # [batch, ceil(frames / 2), width]
        pairs = x[:, : x.shape[1] // 2 * 2].reshape(len(x), -1, 2, x.shape[2]).mean(dim=2)
        out: Tensor = self.proj(self.ln_post(pairs))
        return out

    def _block(self, mel: Tensor) -> Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)
        x = x + self.positions[: x.shape[1]].to(x)
        for layer in self.layers:
            x = layer(x)
        return x


class AudioTower3(nn.Module):
    """Qwen3-Omni's tower."""

    block, window = 100, 800  # mel frames: of one convolution block, and of one attention window

    def __init__(self, shape: TowerShape) -> None:
        super().__init__()
        self.shape = shape
        bins = (shape.mels + 1) // 2
        bins = ((bins + 1) // 2 + 1) // 2
        self.conv2d1 = nn.Conv2d(1, shape.conv, 3, 2, padding=1)
        self.conv2d2 = nn.Conv2d(shape.conv, shape.conv, 3, 2, padding=1)
        self.conv2d3 = nn.Conv2d(shape.conv, shape.conv, 3, 2, padding=1)
        self.conv_out = nn.Linear(shape.conv * bins, shape.width, bias=False)
        self.layers = nn.ModuleList(
            EncoderLayer(shape.width, shape.heads, shape.mlp, key_bias=True) for _ in range(shape.layers)
        )
        self.ln_post = nn.LayerNorm(shape.width)
        self.proj1 = nn.Linear(shape.width, shape.width)
        self.proj2 = nn.Linear(shape.width, shape.out)
        self.positions = sinusoids(-(-self.block // 8), shape.width)

    def forward(self, mel: Tensor) -> Tensor:
        """mel: [batch, mels, frames], all of one length. Returns [batch, tokens, out]."""
        x = self._convolve(mel)
        per_window = self.window // self.block * len(self.positions)
        x = torch.cat([self._attend(part) for part in torch.split(x, per_window, dim=1)], dim=1)
        out: Tensor = self.proj2(F.gelu(self.proj1(self.ln_post(x))))
        return out

    def _convolve(self, mel: Tensor) -> Tensor:
        """Each block by itself, a tail filled up with zeros when blocks came before it, as the authors do."""
        batch, bins, frames = mel.shape
        length = min(frames, self.block)
        mel = F.pad(mel, (0, -frames % length))
        blocks = mel.reshape(batch, bins, -1, length).transpose(1, 2).reshape(-1, 1, bins, length)
        x = F.gelu(self.conv2d3(F.gelu(self.conv2d2(F.gelu(self.conv2d1(blocks))))))
        x = self.conv_out(x.permute(0, 3, 1, 2).flatten(2))  # [batch * blocks, time, width]
        x = x + self.positions[: x.shape[1]].to(x)
        out: Tensor = x.reshape(batch, -1, x.shape[-1])[:, : tokens_of("qwen3", frames)]
        return out

    def _attend(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def make_tower(family: Family, shape: TowerShape) -> AudioTower25 | AudioTower3:
    """The family's tower, without values."""
    return AudioTower25(shape) if family == "qwen2.5" else AudioTower3(shape)
