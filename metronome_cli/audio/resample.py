"""Resamples audio to the input rate of a model."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from scipy.signal import resample_poly

from metronome_cli.core.types import Audio

_MAX_FACTOR = 4096  # bounds the filter length; the rate is off by less than 1e-7


def resample(samples: Audio, from_hz: int, to_hz: int) -> Audio:
    """Resample [n] at `from_hz` to [about n to_hz / from_hz] at `to_hz`, float32, clipped to full scale.

    Uses the polyphase filter with a Kaiser window of `scipy.signal.resample_poly`.
    """
    if from_hz == to_hz:
        return samples
    ratio = Fraction(to_hz, from_hz).limit_denominator(_MAX_FACTOR)
    turned = resample_poly(samples, ratio.numerator, ratio.denominator)
    return np.clip(turned, -1.0, 1.0).astype(np.float32, copy=False)
