"""When a pool is full if the rate at which it fills drifts: an interval that carries the drift.

Samples (t, rho) are cut into K windows of equal length w, and the K increments are modelled as

    increment_k = integral of r over the window + sigma (B_k - B_{k-1}) + tau (e_k - e_{k-1})
    r: a Brownian motion with drift d and variance q per second

sigma is noise that adds up (turns), tau noise of one level (blocks are taken in steps), q says how freely the rate
wanders. Given the ratios of q and tau to sigma the model is linear: sigma^2, the rate now and d have a closed posterior
(normal with inverse gamma). The ratios are averaged over a grid, weighted by their marginal likelihood, so recent
samples weigh more exactly as far as the rate is seen to wander. From there paths are drawn on: the drift fades with a
time constant of `FADES` fitted spans (damped trend: nothing tells how long a trend lasts, so each is as likely), the
rate continues to wander as it did, and a path ends when it reaches `FULL`. The estimate is the median of the ends, and
the interval their 5 and 95 % quantiles. An end of the interval is None if that share of paths does not end within
`HORIZON` spans.

Left out: what changes the load from one instant to the next. Known error: a change faster than about a tenth of the
span is seen late. The draws are the same each time, so the same samples give the same forecast.
Sources: Harvey, Forecasting, Structural Time Series Models and the Kalman Filter (1989), chapter 2, for the local level
of a rate; Gardner and McKenzie, Management Science 31 (1985), for damped trends.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from metronome_cli.forecast.extrapolation import Extrapolation, extrapolate
from metronome_cli.forecast.occupancy_trace import FULL, OccupancyTrace
from metronome_cli.forecast.speaking_time import Reals

WINDOWS = 20
DRAWS = 1000
STEPS = 120  # of a drawn path
HORIZON = 1000.0  # fitted spans that a path is followed
WANDERS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)  # q w^2 / sigma^2
FADES = (0.5, 1.0, 2.0, 4.0, 16.0)  # fitted spans
LEVELS = (0.0, 0.3, 1.0, 3.0)  # tau^2 / (sigma^2 w)
DRIFT_PRIOR = 1.5  # standard deviation of the drift over the fitted span, as a share of the mean rate
MODEL_ERROR = 0.02  # of the time that is left, for curves that are not of this family
NOISE_PRIOR = 1.0  # weight of the prior of sigma^2, in windows
LEAST_NOISE = 0.02  # sigma is at least this share of the mean increment


@dataclass(frozen=True, slots=True)
class FillTime:
    """Seconds from the last sample; None: beyond the horizon. `rate_per_s` and `drift_per_s2` are posterior means."""

    estimate_s: float | None
    low_s: float | None
    high_s: float | None
    rate_per_s: float
    drift_per_s2: float
    never: float  # share of paths that do not end


@dataclass(frozen=True, slots=True)
class _Posterior:
    """Of one pair of ratios: mean and scaled covariance of (rate now, drift), and of sigma^2."""

    log_weight: float
    mean: Reals  # [2]
    root: Reals  # [2, 2], times sigma
    shape: float
    scale: float
    wander: float  # q / sigma^2


def fill_time(trace: OccupancyTrace, windows: int = WINDOWS) -> FillTime:
    """The forecast from at least 8 samples whose times differ."""
    gained, window_s, level = _increments(trace, windows)
    span_s = window_s * len(gained)
    mean_rate = float(gained.sum()) / span_s
    rng = np.random.default_rng(0)
    posteriors = [
        _posterior(gained, window_s, mean_rate, *ratios) for ratios in itertools.product(WANDERS, LEVELS)
    ]
    weights = np.exp(np.array([one.log_weight for one in posteriors]) - max(p.log_weight for p in posteriors))
    weights /= weights.sum()
    rates, drifts, sigmas, wanders = _draw(posteriors, weights, rng)
    ends = _first_passage(FULL - level, rates, drifts, sigmas, wanders, span_s, rng)
    ends = ends * np.exp(MODEL_ERROR * rng.standard_normal(DRAWS)) + trace.spacing_s * rng.random(DRAWS)
    low, middle, high = (_quantile(ends, share) for share in (0.05, 0.5, 0.95))
    return FillTime(
        middle, low, high, float(rates.mean()), float(drifts.mean()), float(np.mean(~np.isfinite(ends)))
    )


def extrapolate_drifting(trace: OccupancyTrace) -> Extrapolation:
    """The forecast of a server that is being watched; whether its pool fills at all is forecast/extrapolation.py's."""
    found = extrapolate(trace)
    if not found.saturates or trace.full_at_s is not None:
        return found
    ahead, now_s = fill_time(trace), float(trace.t_s[-1])
    if ahead.estimate_s is None:
        return Extrapolation(False, "occupancy levels off", rate_per_s=ahead.rate_per_s, falling=True)
    low_s, high_s = (None if end is None else now_s + end for end in (ahead.low_s, ahead.high_s))
    return replace(
        found, t_sat_s=now_s + ahead.estimate_s, low_s=low_s, high_s=high_s, rate_per_s=ahead.rate_per_s
    )


def _increments(trace: OccupancyTrace, windows: int) -> tuple[Reals, float, float]:
    """Increments [K], the length of a window in s, and the last level; K at most half of the samples."""
    count = max(4, min(windows, len(trace) // 2))
    edges = np.linspace(trace.t_s[0], trace.t_s[-1], count + 1)
    levels = np.interp(edges, trace.t_s, trace.occupancy)
    return np.diff(levels), float(edges[1] - edges[0]), float(levels[-1])


@cache
def _shapes(count: int) -> tuple[Reals, Reals, Reals]:
    """Covariances of the increments [K, K] at w = 1: of noise that adds up, of level noise, of a wandering rate."""
    steps = np.eye(count)
    level = 2 * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)
    # the rate runs backwards from now: R(s), s >= 0; increment k integrates R over [s_k, s_k + 1]
    first, second = np.meshgrid(np.arange(count)[::-1], np.arange(count)[::-1], indexing="ij")
    near = np.minimum(first, second)
    wander = np.where(first == second, near + 1 / 3, near + 0.5)  # integral of min(u, v) over both windows
    return steps, level, wander


def _posterior(gained: Reals, window_s: float, mean_rate: float, wander: float, level: float) -> _Posterior:
    count = len(gained)
    steps, levels, wandering = _shapes(count)
    noise = window_s * (steps + level * levels + wander * wandering)  # times sigma^2
    back_s = window_s * (np.arange(count)[::-1] + 0.5)  # middle of each window, before now
    design = window_s * np.stack([np.ones(count), -back_s], axis=1)  # [K, 2]: rate now, drift
    span_s = window_s * count
    least = (LEAST_NOISE * abs(mean_rate) * window_s) ** 2 / window_s + 1e-18
    # the prior of the drift is in absolute terms, so sigma^2 enters by its rough size
    bends = np.diff(gained, 2)  # free of the drift; of independent noise their variance is 6 times its own
    rough = max(least, float(bends @ bends) / (6 * len(bends) * window_s))
    drift_sd = DRIFT_PRIOR * max(abs(mean_rate), 1e-12) / span_s
    precision = np.diag([0.0, rough / drift_sd**2])
    solved = np.linalg.solve(noise, np.column_stack([design, gained]))
    inner = design.T @ solved[:, :2] + precision
    mean = np.linalg.solve(inner, design.T @ solved[:, 2])
    square = float(gained @ solved[:, 2] - mean @ inner @ mean)
    shape = (count - 1 + NOISE_PRIOR) / 2
    scale = (max(square, 0.0) + NOISE_PRIOR * least) / 2
    _, log_noise = np.linalg.slogdet(noise)
    _, log_inner = np.linalg.slogdet(inner)
    weight = -0.5 * log_noise - 0.5 * log_inner - shape * np.log(scale) + 0.5 * np.log(precision[1, 1])
    root = np.linalg.cholesky(np.linalg.inv(inner))
    return _Posterior(float(weight), mean, root, shape, scale, wander / window_s**2)


def _draw(
    posteriors: Sequence[_Posterior], weights: Reals, rng: np.random.Generator
) -> tuple[Reals, Reals, Reals, Reals]:
    """Rate now, drift, sigma and the rate's own noise, one of each per path."""
    chosen = rng.choice(len(posteriors), size=DRAWS, p=weights)
    normal = rng.standard_normal((DRAWS, 2))
    gamma = np.array([rng.gamma(posteriors[i].shape) for i in chosen])
    sigma = np.sqrt(np.array([posteriors[i].scale for i in chosen]) / gamma)
    both = np.stack([posteriors[i].mean for i in chosen]) + sigma[:, None] * np.einsum(
        "nij,nj->ni", np.stack([posteriors[i].root for i in chosen]), normal
    )
    wander = sigma * np.sqrt(np.array([posteriors[i].wander for i in chosen]))
    return both[:, 0], both[:, 1], sigma, wander


def _first_passage(
    missing: float,
    rates: Reals,
    drifts: Reals,
    sigmas: Reals,
    wanders: Reals,
    span_s: float,
    rng: np.random.Generator,
) -> Reals:
    """When each path has gained `missing`, s; infinite beyond the horizon. Steps grow with the time that is left."""
    edges = _edges(missing / max(float(np.median(rates)), 1e-12), HORIZON * span_s)
    fade_s = span_s * rng.choice(np.array(FADES), size=DRAWS)
    gained, rate, ends = np.zeros(DRAWS), rates.copy(), np.full(DRAWS, np.inf)
    for begin, end in itertools.pairwise(edges):
        length = end - begin
        drift = drifts * fade_s * (np.exp(-begin / fade_s) - np.exp(-end / fade_s))
        change = drift + wanders * np.sqrt(length) * rng.standard_normal(DRAWS)
        more = np.maximum(0.0, rate + change / 2) * length + sigmas * np.sqrt(length) * rng.standard_normal(
            DRAWS
        )
        crosses = np.isinf(ends) & (gained + more >= missing)
        ends[crosses] = begin + length * np.clip((missing - gained[crosses]) / more[crosses], 0.0, 1.0)
        gained, rate = gained + more, rate + change
    return ends


def _edges(typical_s: float, horizon_s: float) -> Reals:
    """Steps of a path: even until well past the typical end, then longer and longer."""
    even_s = min(2 * typical_s, horizon_s / 2)
    half = STEPS // 2
    return np.concatenate([np.linspace(0, even_s, half + 1), np.geomspace(even_s, horizon_s, half)[1:]])


def _quantile(ends: Reals, share: float) -> float | None:
    value = float(np.quantile(ends, share, method="inverted_cdf"))
    return value if np.isfinite(value) else None
