"""Audio as tokens for a decoder that hears none: crude, deterministic, and dependent on every sample.

A frame is cut into equal slices, one token each. A slice's loudness (32 steps of 3 dB below full scale)
and its rate of zero crossings (32 steps) make a number below 1,024, which a multiplicative hash spreads
over the vocabulary. The decoder makes no sense of it; its work and its memory are those of a real
session, and two sessions with different audio feed different tokens.
"""

from __future__ import annotations

import numpy as np

from metronome_cli.core.types import Audio

_STEPS = 32
_STEP_DB = 3.0
_SPREAD = 2_654_435_761  # Knuth's: 2^32 over the golden ratio


def audio_to_tokens(audio: Audio, count: int, vocab: int) -> list[int]:
    """`count` tokens below `vocab` of one frame's samples."""
    slices = np.array_split(np.asarray(audio, dtype=np.float64), count)
    return [_code(piece) * _SPREAD % 2**32 % vocab for piece in slices]


def _code(piece: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    """0 to 1023: loudness and pitch of a slice; silence is 0."""
    if not len(piece):
        return 0
    power = float(np.mean(piece**2))
    level = 0 if power <= 0 else max(0, _STEPS + round(10 * np.log10(power) / _STEP_DB))
    crossings = float(np.mean(np.signbit(piece[1:]) != np.signbit(piece[:-1]))) if len(piece) > 1 else 0.0
    return min(level, _STEPS - 1) * _STEPS + min(int(crossings * _STEPS), _STEPS - 1)
