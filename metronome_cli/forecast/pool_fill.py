"""When does a pool of blocks run out? First passage of the blocks that N sessions hold.

Between a session's start and its end it only gains blocks, so the pool's use U(t) never falls and

    { t_sat <= t }  =  { U(t) > M },        P(t_sat <= t) = P(U(t) > M),

with M the blocks of the pool: no first-passage correction is needed. (For a diffusion with drift, which may
step back, the passage time would be inverse Gaussian; a process that cannot step back and has normal
increments has the Birnbaum-Saunders law instead. With the moments below the two agree to first order.) U(t)
is a sum of independent sessions, each with the exact law of forecast/growth.py, so its law is a product of
transforms: a circular one, wide enough for 12 standard deviations on either side.

To first order, with r the share of the pool that one session fills a second, rho(t) = rho0 + N r t and
t_sat = (1 - rho0) / (N r) (arXiv:2607.02640); the exact form adds block rounding (about half a block a
session) and the spread of t_sat.

Windows that are full go on changing by a block each, as they move over block borders: a pool that holds them on the
mean may still be full in an unlucky frame. Those frames are taken as independent draws of the blocks that full windows
touch (`Growth.settled`).

Starts are staggered: session i starts at `over_s` i / N plus its phase in the period, (i golden) mod 1 of
it. t_sat is the first instant at which a frame finds no block. What is left out: queueing of frames (a
served frame takes its blocks when it is served, not when it is due).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from metronome_cli.forecast.growth import CacheGrowth, PositionDistribution

GOLDEN = 0.6180339887498949  # phases i x golden mod 1 spread evenly for any count
_REACH = 12.0  # standard deviations on either side
_CERTAIN = 1e-12


def staggered_starts(sessions: int, period_s: float, over_s: float = 0.0) -> npt.NDArray[np.float64]:
    """Start instants in seconds: spread over `over_s`, each with its own phase in the period."""
    index = np.arange(sessions)
    starts: npt.NDArray[np.float64] = over_s * index / max(1, sessions) + (index * GOLDEN % 1.0) * period_s
    return starts


@dataclass(frozen=True, slots=True)
class PoolFill:
    """One pool and the sessions that fill it. `occupied` blocks were taken before and stay taken."""

    name: str
    growth: CacheGrowth
    sessions: int
    total_blocks: int
    occupied: int = 0
    over_s: float = 0.0
    _starts: npt.NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = staggered_starts(self.sessions, self.growth.period_s, self.over_s)
        object.__setattr__(self, "_starts", starts)

    @property
    def free_blocks(self) -> int:
        return self.total_blocks - self.occupied

    @property
    def rate(self) -> float:
        """r: the share of the pool that one session fills a second, in the long run."""
        return self.growth.per_second / self.growth.block_tokens / max(1, self.total_blocks)

    @property
    def first_order_s(self) -> float:
        """(1 - rho0) / (N r); infinite when nothing grows, or what grows stops before the pool is full."""
        if self.free_blocks <= 0:
            return 0.0
        speed = self.sessions * self.rate
        settled = self.growth.settled()
        fits = self.fits if settled is None else self.sessions * settled.mean <= self.free_blocks
        return self.free_blocks / self.total_blocks / speed if speed and not fits else math.inf

    @property
    def fits(self) -> bool:
        """Whether the pool holds every session at its largest."""
        most = self.growth.blocks_at_most()
        return most is not None and self.sessions * most <= self.free_blocks

    @property
    def settles_at(self) -> float | None:
        """Mean occupancy once every window is full; above 1 when they do not fit; None without a bound."""
        settled, most = self.growth.settled(), self.growth.blocks_at_most()
        each = most if settled is None else settled.mean
        return None if each is None else (self.occupied + self.sessions * each) / max(1, self.total_blocks)

    def use(self, t_s: float) -> PositionDistribution:
        """Law of the blocks that these sessions hold at that instant."""
        frames = np.maximum(0, np.floor((t_s - self._starts) / self.growth.period_s + 1e-9)).astype(np.int64)
        kinds, counts = np.unique(frames, return_counts=True)
        return _sum([(self.growth.law(int(k)), int(c)) for k, c in zip(kinds, counts, strict=True)])

    def by(self, t_s: float) -> float:
        """P(the pool is full at or before that instant).

        What grows is judged at that instant. Full windows go up and down by a block each, so every frame since is a
        draw of its own: those that follow each other are alike, and this errs towards an earlier end.
        """
        if self.fits:
            return 0.0
        filled = self.use(t_s).above(self.free_blocks)
        settled = self.growth.settled()
        if settled is None:
            return filled
        once = _sum([(settled, self.sessions)]).above(self.free_blocks)
        if once >= 1 - _CERTAIN:
            return max(filled, float(t_s >= self._full_s))
        draws = max(0.0, t_s - self._full_s) / self.growth.period_s
        return 1 - (1 - filled) * math.exp(draws * math.log1p(-once))

    @property
    def _full_s(self) -> float:
        """When windows are full on the mean."""
        policy, speed = self.growth.policy, self.growth.per_second
        return (policy.sinks + policy.window) / speed + self.over_s if speed else math.inf


def _sum(groups: list[tuple[PositionDistribution, int]]) -> PositionDistribution:
    """Law of the sum of independent draws, `count` from each law."""
    mean = sum(law.mean * count for law, count in groups)
    sd = math.sqrt(sum(law.variance * count for law, count in groups))
    widest = max(len(law.weights) for law, _ in groups)
    size = 1 << math.ceil(math.log2(2 * _REACH * sd + widest + 4))
    transform = np.ones(size // 2 + 1, dtype=np.complex128)
    for law, count in groups:
        transform *= np.fft.rfft(law.weights, size) ** count
    base = sum(law.low * count for law, count in groups)  # index 0 of the circle stands for this value
    low = max(base, math.floor(mean) - size // 2)
    circle = np.clip(np.fft.irfft(transform, size), 0.0, None)
    weights = np.roll(circle, -((low - base) % size))
    return PositionDistribution(low, weights / weights.sum())
