"""A pool whose sessions are emptied at each turn's end (a talker): how long until a peak no longer fits?

Here use goes up and down, so it is a race of peaks, not of growth. In the long run J of N sessions speak, J
being binomial(N, share), and each of them has gathered v positions a second for an exponential time of mean
turn_s: a geometric number of blocks with ratio g = exp(-b / (v turn_s)), so J of them hold M blocks with
probability

    P(M | J) = C(M - 1, J - 1) (1 - g)^J g^(M - J).

An upcrossing is a block asked for while all M are in use (Rice's argument):

    nu = sum_J P(J) P(M | J) J v / b.

Upcrossings come in clumps. Near M, use climbs at J v / b and falls by M / J at a rate of J / turn_s; for
such a process (linear climb, exponential drops) the chance to come back up after a drop is u = J v turn_s /
(b M), the ratio of climb to fall, so a clump has 1 / (1 - u) upcrossings and the sum above takes the weight
1 - u, where u < 1. Clumps are rare, hence about Poisson:

    P(by t) = 1 - exp(-nu' (t - t0)),

t0 being the time in which N speakers fill an empty pool: none is full before. What a session gathers while
listening, where a store does that, is taken at its mean. Left out: that the pool is emptier in the first turns than
in the long run.

A turn that passes the stage's `limit` alone counts too. It does so limit / v after it began. Such turns begin at
mu = N exp(-limit / (v turn_s)) / (turn_s + listen_s) a second, and those that are under way at the start are as many
as begin in turn_s: from limit / v on, P(by t) = 1 - exp(-mu (t - limit / v + turn_s)).

Sources: Rice, Bell System Technical Journal 24 (1945); Aldous, Probability Approximations via the Poisson Clumping
Heuristic (1989).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metronome_cli.load.turn_taking import TurnTakingProcess


@dataclass(frozen=True, slots=True)
class TurnCacheFill:
    """`listening`, `speaking`: positions a second. `total_blocks` None: no pool, only the limit counts.

    For processes that do take turns: a model that always speaks never resets, and fills like any other pool.
    """

    name: str
    process: TurnTakingProcess
    sessions: int
    listening: float
    speaking: float
    block_tokens: int = 1
    total_blocks: int | None = None
    limit: int | None = None

    @property
    def mean_positions(self) -> float:
        """What one session holds in the long run."""
        return self._heard + self.process.share * self.speaking * self.process.turn_s

    @property
    def first_order_s(self) -> float:
        """Mean time to the first peak that does not fit; infinite when all fit."""
        peaks, turns = self.peaks_per_s(), self.long_turns_per_s()
        rate = peaks + turns
        return (self._soonest_peak_s if peaks else self._soonest_turn_s) + 1 / rate if rate else math.inf

    def by(self, t_s: float) -> float:
        """P(a peak, or one turn, did not fit at or before that instant)."""
        peaks, turns, expected = self.peaks_per_s(), self.long_turns_per_s(), 0.0
        if peaks and t_s > self._soonest_peak_s:
            expected += peaks * (t_s - self._soonest_peak_s)
        if turns and t_s > self._soonest_turn_s:
            expected += turns * (t_s - self._soonest_turn_s + self.process.turn_s)
        return -math.expm1(-expected)

    @property
    def _soonest_peak_s(self) -> float:
        """Return when the pool is full if all sessions speak from the start."""
        assert self.total_blocks is not None
        return self.total_blocks * self.block_tokens / (self.sessions * max(self.speaking, self.listening))

    @property
    def _soonest_turn_s(self) -> float:
        """When a turn that began at the start passes the limit."""
        assert self.limit is not None
        return self.limit / self.speaking

    def long_turns_per_s(self) -> float:
        """Turns that pass the limit by themselves, a second, over all sessions."""
        if self.limit is None or not self.process.varies or not self.speaking:
            return 0.0
        turn_s = self.process.turn_s
        cycle_s = turn_s + self.process.listen_s
        return self.sessions * math.exp(-self.limit / (self.speaking * turn_s)) / cycle_s

    def peaks_per_s(self) -> float:
        """nu': clumps of peaks that do not fit, a second."""
        if self.total_blocks is None or not self.process.varies or not self.speaking:
            return 0.0
        free = self.total_blocks - math.ceil(self.sessions * self._heard / self.block_tokens)
        climb = self.speaking / self.block_tokens  # blocks a second
        if free < 1:
            return math.inf
        return sum(self._clumps(speakers, free, climb) for speakers in range(1, self.sessions + 1))

    @property
    def _heard(self) -> float:
        if not self.listening or not self.process.share:
            return 0.0
        return self.listening * self.process.listen_s

    def _clumps(self, speakers: int, free: int, climb: float) -> float:
        """The term of J = `speakers`."""
        if speakers > free:
            return self._chance_of(speakers) * speakers * climb
        turn_s = self.process.turn_s
        ratio = math.exp(-1 / (climb * turn_s))
        log_full = _log_choose(free - 1, speakers - 1) + speakers * math.log1p(-ratio)
        log_full += (free - speakers) * math.log(ratio)
        back = speakers * climb * turn_s / free
        return self._chance_of(speakers) * math.exp(log_full) * speakers * climb * max(0.05, 1 - back)

    def _chance_of(self, speakers: int) -> float:
        p = self.process.share
        log = _log_choose(self.sessions, speakers)
        return math.exp(log + speakers * math.log(p) + (self.sessions - speakers) * math.log1p(-p))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
