"""Blocks that one session holds in one KV pool, frame by frame.

After k frames, S of them spoken, a session has seen

    T(k, S) = head + floor(k into + (k - S) listening + S speaking)

positions; the policy says how many of them stay resident, and blocks round that up. The law of S
(forecast/speaking_time.py) makes the distribution of the blocks: rounding and
randomness are both exact, nothing is linearised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.forecast.speaking_time import Reals, spoken_law
from metronome_cli.load.turn_taking import TurnTakingProcess

UNBOUNDED = CachePolicySpec("unbounded")
_EPS = 1e-9


@dataclass(frozen=True, slots=True)
class PositionDistribution:
    """A law on whole numbers: P(low + i) = weights[i]."""

    low: int
    weights: Reals

    @property
    def mean(self) -> float:
        return self.low + float(np.arange(len(self.weights)) @ self.weights)

    @property
    def variance(self) -> float:
        steps = np.arange(len(self.weights))
        return max(0.0, float(steps**2 @ self.weights) - float(steps @ self.weights) ** 2)

    def quantile(self, share: float) -> int:
        """Smallest value that is not exceeded with probability `share`."""
        return self.low + int(np.searchsorted(np.cumsum(self.weights), share * (1 - _EPS)))

    def above(self, value: float) -> float:
        """P(X > value)."""
        first = math.floor(value) + 1 - self.low
        return min(1.0, float(self.weights[max(0, first) :].sum()))


@dataclass(frozen=True, slots=True)
class CacheGrowth:
    """One session in one store. Rates are positions a frame; `head` positions are there at the start."""

    process: TurnTakingProcess
    period_s: float
    into: float = 0.0
    listening: float = 0.0
    speaking: float = 0.0
    head: float = 0.0
    block_tokens: int = 1
    policy: CachePolicySpec = UNBOUNDED
    _laws: dict[int, PositionDistribution] = field(default_factory=dict, compare=False, repr=False)

    @property
    def mean_per_frame(self) -> float:
        """Positions a frame in the long run."""
        share = self.process.share
        return self.into + share * self.speaking + (1 - share) * self.listening

    @property
    def per_second(self) -> float:
        """Positions a second in the long run."""
        return self.mean_per_frame / self.period_s

    @property
    def least_per_frame(self) -> float:
        """Positions a frame when it grows slowest."""
        return self.into + min(self.listening, self.speaking)

    @property
    def most_per_frame(self) -> float:
        """Positions a frame when it grows fastest."""
        return self.into + max(self.listening, self.speaking)

    def blocks_at_most(self) -> int | None:
        """Blocks that a session never exceeds; None when it grows without end."""
        forward = math.ceil(self.into) + (
            max(self.listening, self.speaking) > 0
        )  # the last token said comes along
        return self.policy.most_blocks(
            forward=forward, frame=math.ceil(self.most_per_frame), block_tokens=self.block_tokens
        )

    @property
    def full_frames(self) -> int | None:
        """Frames after which a window is surely full; None where there is none, or nothing is added."""
        if self.policy.kind != "window" or not self.least_per_frame:
            return None
        return math.ceil((self.policy.sinks + self.policy.window) / self.least_per_frame)

    def settled(self) -> PositionDistribution | None:
        """Blocks of a full window while a frame is served; None for other policies.

        The frame's first query looks back W, and that position is uniformly distributed within a block: a window
        touches one block more at some offsets than at others. Sinks fill blocks of their own.
        """
        if self.policy.kind != "window":
            return None
        size, share = self.block_tokens, self.process.share
        sinks = math.ceil(self.policy.sinks / size)
        offsets = np.arange(size)
        blocks, weights = [], []
        for positions, chance in ((self.listening, 1 - share), (self.speaking, share)):
            last = offsets + self.policy.window + math.ceil(self.into + positions) - 1
            blocks.append(sinks + 1.0 + last // size)
            weights.append(np.full(size, chance / size))
        return _collect(np.concatenate(blocks), np.concatenate(weights))

    def law(self, frames: int) -> PositionDistribution:
        """Blocks held after that many frames; of a window as many as it holds at the least once it is full."""
        if self.full_frames is not None:
            frames = min(frames, self.full_frames)
        known = self._laws.get(frames)
        if known is None:
            known = self._laws[frames] = self._law(frames)
        return known

    def positions_law(self, frames: int) -> PositionDistribution:
        """Positions seen after that many frames, resident or not."""
        low, weights = spoken_law(self.process, self.period_s, frames)
        return _collect(self._positions(frames, low + np.arange(len(weights), dtype=np.float64)), weights)

    def _law(self, frames: int) -> PositionDistribution:
        if self.listening == self.speaking:
            return PositionDistribution(
                int(self._blocks(self._positions(frames, np.zeros(1)))[0]), np.ones(1)
            )
        low, weights = spoken_law(self.process, self.period_s, frames)
        spoken = low + np.arange(len(weights), dtype=np.float64)
        return _collect(self._blocks(self._positions(frames, spoken)), weights)

    def _positions(self, frames: int, spoken: Reals) -> Reals:
        added = frames * (self.into + self.listening) + spoken * (self.speaking - self.listening)
        seen: Reals = self.head + np.floor(added + _EPS)
        return seen

    def _blocks(self, positions: Reals) -> Reals:
        blocks: Reals = np.ceil(positions / self.block_tokens - _EPS)
        settled = self.settled()
        most = self.blocks_at_most() if settled is None else settled.low
        if most is None:
            return blocks
        return np.full_like(blocks, most) if self.policy.kind == "ring" else np.minimum(blocks, most)


def _collect(values: Reals, weights: Reals) -> PositionDistribution:
    """The law of `values`, which need not be in order or distinct."""
    whole = np.rint(values).astype(np.int64)
    low = int(whole.min())
    return PositionDistribution(low, np.bincount(whole - low, weights=weights).astype(np.float64))
