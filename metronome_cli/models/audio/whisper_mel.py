"""Whisper's log-mel power, and a stream of it that equals the whole recording's.

16 kHz, 400-sample Hann windows every 160 samples, Slaney's mel filters, log10. Frame m is centred on
sample 160 m, so it needs 200 samples of the future. A stream therefore begins with 160 zeros: n hops of
audio then complete exactly n frames. Values are floored at 8 below the loudest, and scaled by (x + 4) /
4. A stream knows only what it has heard so far: its floor is the whole recording's from the loudest
moment on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metronome_cli.core.types import Audio
from metronome_cli.engine.transfer import to_device

RATE = 16_000
WINDOW, HOP = 400, 160
HALF = WINDOW // 2
RANGE = 8.0
LEAD = 160  # zeros before the stream
_CARRY = HALF + LEAD  # samples between the start of the next frame's window and the stream's end


class WhisperLogMel:
    """log10 of mel power of samples, on one device."""

    def __init__(self, bins: int, device: torch.device) -> None:
        from transformers.audio_utils import mel_filter_bank

        filters = mel_filter_bank(
            1 + WINDOW // 2, bins, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney"
        )
        self.device = device
        self.filters = torch.from_numpy(np.asarray(filters, dtype=np.float32)).to(device).T.contiguous()
        self.window = torch.hann_window(WINDOW, device=device)

    def __call__(self, samples: Tensor) -> Tensor:
        """samples: [batch, n], 200 around the first and last centre included -> [batch, bins, frames]."""
        spectrum = torch.stft(samples, WINDOW, HOP, window=self.window, center=False, return_complex=True)
        power = self.filters @ spectrum.abs().square()
        return power.clamp(min=1e-10).log10()


@dataclass(slots=True)
class WhisperMelStream:
    """One session's past: the samples that its next frames still read, and the loudest value so far."""

    carry: Audio | None = None
    loudest: float = float("-inf")

    nbytes = 4 * _CARRY


class WhisperStreamingMel:
    """The next frames of many sessions, all given equally many samples."""

    def __init__(self, bins: int, device: torch.device) -> None:
        self.log_mel = WhisperLogMel(bins, device)

    def __call__(self, streams: Sequence[WhisperMelStream], audio: Sequence[Audio]) -> Tensor:
        """audio: a multiple of 160 samples each. Returns [batch, bins, samples / 160]."""
        heard = np.stack([_joined(stream, samples) for stream, samples in zip(streams, audio, strict=True)])
        raw = self.log_mel(to_device(heard, self.log_mel.device))
        for stream, samples, loudest in zip(streams, heard, raw.amax((1, 2)).tolist(), strict=True):
            stream.carry = samples[-_CARRY:].copy()
            stream.loudest = max(stream.loudest, loudest)
        floor = torch.tensor([stream.loudest - RANGE for stream in streams], device=raw.device)
        return (torch.maximum(raw, floor[:, None, None]) + 4.0) / 4.0


def _joined(stream: WhisperMelStream, samples: Audio) -> Audio:
    """Carried and new samples; a stream's start is reflected, as Whisper does."""
    samples = np.asarray(samples, dtype=np.float32)
    if stream.carry is None:
        start = np.concatenate([np.zeros(LEAD, np.float32), samples])
        return np.pad(start, (HALF, 0), mode="reflect")
    return np.concatenate([stream.carry, samples])
