"""In how many of its first k frames does the model speak? The exact law of that count.

A frame's state is the turn process seen at the frame's start, so over frames it is a two-state Markov chain
with share p of speech and lag-one correlation lambda = exp(-theta B), theta being the process's relaxation
rate and B the period. With the one-frame matrix P and D(z) = diag(1, z) the generating function of the
count S_k is

    E[z^S_k] = pi D (P D)^(k-1) 1,    trace(P D) = P00 + P11 z,    det(P D) = lambda z,

and a 2 x 2 matrix power has a closed form in its two eigenvalues, so the law is one inverse FFT of k + 1
points on the unit circle. Moments, from the covariances p q lambda^h:

    E S_k = k p,  Var S_k = p q [ k (1 + lambda) / (1 - lambda) - 2 lambda (1 - lambda^k) / (1 - lambda)^2 ].

As B goes to 0 this is the variance of the time spent in one state of an alternating renewal process, 2 p q
t / theta for large t (Cox, Renewal Theory, 1962, chapter 7, for exponential turns). Above `EXACT_FRAMES`
frames the law is the normal one with these moments, on the integers; its error there is below 1e-3 of a
probability.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from metronome_cli.load.turn_taking import TurnTakingProcess

Reals = npt.NDArray[np.float64]
EXACT_FRAMES = 8192
_NEGLIGIBLE = 1e-15  # probability cut from each tail
_REACH = 9.0  # standard deviations kept of the normal law


def spoken_moments(process: TurnTakingProcess, period_s: float, frames: int) -> tuple[float, float]:
    """Mean and variance of the speaking frames among the first `frames`."""
    p, k = process.share, frames
    if not process.varies or k == 0:
        return k * p, 0.0
    fade = math.exp(-process.relaxation_per_s * period_s)
    rest = -math.expm1(-process.relaxation_per_s * period_s)  # 1 - lambda, without cancellation
    gone = -math.expm1(-process.relaxation_per_s * period_s * k)  # 1 - lambda^k
    if rest * k < 1e-4:  # all frames in one turn: the closed form cancels
        return k * p, p * (1 - p) * k * k
    return k * p, p * (1 - p) * max(0.0, k * (1 + fade) / rest - 2 * fade * gone / rest**2)


@lru_cache(maxsize=4096)
def spoken_law(process: TurnTakingProcess, period_s: float, frames: int) -> tuple[int, Reals]:
    """(low, weights): P(S = low + i) = weights[i]; weights sum to 1, negligible tails are cut."""
    if frames == 0 or not process.varies:
        return round(frames * process.share), np.ones(1)
    if frames > EXACT_FRAMES:
        return _normal_law(*spoken_moments(process, period_s, frames), frames)
    points = frames + 1
    z = np.exp(-2j * np.pi * np.arange(points // 2 + 1) / points)
    return _trim(0, np.fft.irfft(_generating(process, period_s, frames, z), points))


def _generating(
    process: TurnTakingProcess, period_s: float, frames: int, z: npt.NDArray[np.complex128]
) -> npt.NDArray[np.complex128]:
    """E[z^S] at each z."""
    p, q = process.share, 1 - process.share
    fade = math.exp(-process.relaxation_per_s * period_s)
    stay, keep = q + p * fade, p + q * fade  # listening stays so, speaking stays so
    trace, det = stay + keep * z, fade * z
    root = np.sqrt(trace * trace - 4 * det)
    root = np.where(np.abs(root) < 1e-9, 1e-9, root)
    big, small = (trace + root) / 2, (trace - root) / 2
    power = (big ** (frames - 1) - small ** (frames - 1)) / root
    rest = det * (big ** (frames - 2) - small ** (frames - 2)) / root if frames > 1 else -1.0
    # (P D)^(k-1) = power (P D) - rest I, applied to the vector of ones; the zeroth power is I itself:
    ones_listening = power * (stay + (1 - stay) * z) - rest
    ones_speaking = power * ((1 - keep) + keep * z) - rest
    return q * ones_listening + p * z * ones_speaking


def _normal_law(mean: float, variance: float, frames: int) -> tuple[int, Reals]:
    from scipy.special import ndtr

    sd = math.sqrt(variance)
    low = max(0, math.floor(mean - _REACH * sd))
    high = min(frames, math.ceil(mean + _REACH * sd))
    edges = ndtr((np.arange(low, high + 2) - 0.5 - mean) / sd)
    weights = np.diff(edges)
    return low, weights / weights.sum()


def _trim(low: int, weights: Reals) -> tuple[int, Reals]:
    """Drop both negligible tails and normalise."""
    weights = np.clip(weights, 0.0, None)
    kept = np.flatnonzero(weights > _NEGLIGIBLE)
    first, last = int(kept[0]), int(kept[-1])
    weights = weights[first : last + 1]
    return low + first, weights / weights.sum()
