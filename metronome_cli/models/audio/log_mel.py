"""Causal log-mel features: computed frame by frame, they equal those of the whole recording.

Feature m describes the 25 ms that end with sample (m + 1) x hop, hop being 10 ms: no future sample is
needed, and 15 ms of the past are kept between frames (`history`). The spectrum is
taken over twice the window, zero-padded, so that even the narrowest filter has a bin of its own. The floor
is fixed, not relative to the loudest feature of the recording, which a stream does not know.

Mel scale: Slaney's, linear below 1 kHz and logarithmic above (Auditory Toolbox, 1998); filters of equal area.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metronome_cli.core.errors import UsageError

HOPS_PER_S = 100
FLOOR = 1e-10  # of power, after the filters
_LINEAR_HZ = 200.0 / 3.0  # a mel below 1 kHz
_BREAK_HZ = 1000.0
_LOG_STEP = math.log(6.4) / 27.0  # of a mel above


class CausalLogMel:
    """[batch, history + n x hop] samples -> [batch, n, mels] features, about -1.5 (silence) to 1.5."""

    def __init__(self, sample_rate: int, mels: int, device: torch.device | str = "cpu") -> None:
        if sample_rate % HOPS_PER_S or sample_rate < 2 * HOPS_PER_S:
            raise UsageError(
                f"a sample rate of {sample_rate} Hz gives no whole number of samples in 10 ms",
                hint="use a multiple of 100 Hz, such as 8000, 16000 or 24000",
            )
        self.mels = mels
        self.hop = sample_rate // HOPS_PER_S
        self.window = 5 * self.hop // 2
        self.history = self.window - self.hop
        self._hann = torch.hann_window(self.window, periodic=True, dtype=torch.float64).float().to(device)
        self._filters = mel_filters(sample_rate, 2 * self.window, mels).to(device)

    def __call__(self, samples: Tensor) -> Tensor:
        windows = samples.unfold(1, self.window, self.hop) * self._hann
        power = torch.fft.rfft(windows, n=2 * self.window).abs().square()
        return torch.log10(torch.clamp(power @ self._filters, min=FLOOR)).add_(4.0).div_(4.0)


def mel_filters(sample_rate: int, fft_size: int, mels: int) -> Tensor:
    """[fft_size // 2 + 1, mels] triangular filters from 0 Hz to half the sample rate."""
    bins = torch.arange(fft_size // 2 + 1, dtype=torch.float64) * sample_rate / fft_size
    top = _to_mel(sample_rate / 2.0)
    edges = torch.tensor([_to_hz(top * i / (mels + 1)) for i in range(mels + 2)], dtype=torch.float64)
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins[:, None] - low) / (centre - low)
    falling = (high - bins[:, None]) / (high - centre)
    triangles = torch.minimum(rising, falling).clamp(min=0.0)
    return (triangles * 2.0 / (high - low)).float()


def _to_mel(hz: float) -> float:
    if hz < _BREAK_HZ:
        return hz / _LINEAR_HZ
    return _BREAK_HZ / _LINEAR_HZ + math.log(hz / _BREAK_HZ) / _LOG_STEP


def _to_hz(mel: float) -> float:
    bend = _BREAK_HZ / _LINEAR_HZ
    return mel * _LINEAR_HZ if mel < bend else _BREAK_HZ * math.exp(_LOG_STEP * (mel - bend))
