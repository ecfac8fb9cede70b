"""From any rate to the rate a model listens at."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from scipy.signal import resample_poly

from metronome_cli.core.types import Audio

_MAX_FACTOR = 4096  # keeps the filter short for rates that share no factor; off by less than 1e-7 of the rate


def resample(samples: Audio, from_hz: int, to_hz: int) -> Audio:
    """[n] at `from_hz` -> [about n to_hz / from_hz] at `to_hz`, float32, clipped to full scale.

    Polyphase filtering with a Kaiser window, as `scipy.signal.resample_poly` does it.
    """
    if from_hz == to_hz:
        return samples
    ratio = Fraction(to_hz, from_hz).limit_denominator(_MAX_FACTOR)
    turned = resample_poly(samples, ratio.numerator, ratio.denominator)
    return np.clip(turned, -1.0, 1.0).astype(np.float32, copy=False)
