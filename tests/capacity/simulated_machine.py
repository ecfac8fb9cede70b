"""Simulated machines whose largest number of sessions is known: step cost by batch size, noise, and interference.

Each session owes a frame every 80 ms at a phase of its own. A step serves every frame that is due when the step before
it ends, one frame per session, and takes `cost(batch) * noise`. Latency runs from the planned time to the end of the
step. The truth is the share of late frames over many long trials, each on an engine of its own.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betaincinv

from metronome_cli.measure.confidence import lower_bound, upper_bound

PERIOD_MS = 80.0  # also the deadline
SHARE = 0.01  # of frames that may be late
SET_UP_S = 0.3  # of a new engine and its sessions
WARM_UP = 12  # steps that are not counted
FAIR = 150  # batches before a trial that can no longer pass is given up
BACKLOG_FRAMES = 25  # behind by more: the session has fallen behind
GOLDEN = 0.6180339887498949  # spreads the phases evenly for any number of sessions


def _linear(batch: int) -> float:
    return 12.0 + 0.75 * batch


@dataclass(frozen=True)
class Machine:
    """One machine. Costs in ms; `noise`, `turns` and `engines` are standard deviations of the log of a step's cost."""

    cost: Callable[[int], float] = _linear
    noise: float = 0.06  # of a step
    turns: float = 0.02  # of the load, as sessions take turns, with a correlation time of 4 s
    engines: float = 0.015  # between engines
    tail: float = 0.0  # share of steps with a Pareto factor of index 2.5
    lapses: float = 0.0  # share of steps that take 70 ms and an exponential 30 ms more
    burst: tuple[float, float, float] | None = None  # length in s, one in so many s, factor
    drift: float = 0.0  # log cost per minute
    ceiling: int = 187


def _knee(batch: int) -> float:
    """A step of more than 16 frames needs a second, larger kernel."""
    return 10.0 + 0.06 * batch if batch <= 16 else 30.0 + 0.45 * (batch - 17)


def _serial(batch: int) -> float:
    return 42.0 + 22.0 * batch


MACHINES = {
    "quiet": Machine(),
    "heavy tail": Machine(tail=0.03),
    "0.3 % interference": Machine(lapses=0.0005),
    "1.5 % interference": Machine(lapses=0.015),
    "bursts": Machine(burst=(5.0, 30.0, 2.5)),
    "knee": Machine(cost=_knee),
    "drift": Machine(drift=0.15),
    "one": Machine(cost=_serial),
    "ceiling": Machine(ceiling=40),
}


@dataclass(frozen=True)
class Batch:
    """One step: when it was done, its frames, those later than the deadline, and their latency in ms."""

    t_s: float
    frames: int
    late: int
    worst_ms: float
    median_ms: float


@dataclass(frozen=True)
class SimulatedTrial:
    """What one trial measured."""

    sessions: int
    batches: list[Batch]
    verdict: str  # "pass", "fail" or "inconclusive"
    took_s: float


class SimulatedRun:
    """`sessions` on a new engine, stepped one batch at a time. `clock` is the machine's own time in s."""

    def __init__(
        self, machine: Machine, sessions: int, rng: np.random.Generator, began_s: float, phase_s: float
    ) -> None:
        self.machine, self.rng, self.began_s, self.phase_s = machine, rng, began_s, phase_s
        self.phases = sorted(i * GOLDEN % 1.0 * PERIOD_MS for i in range(sessions))
        self.next, self.free_ms, self.behind = 0, 0.0, False  # frame to serve; end of the last step
        self._costs = [machine.cost(b) for b in range(sessions + 1)]
        self._load, self._engine = rng.normal(0, machine.turns), rng.normal(0, machine.engines)
        self._drawn: list[tuple[float, float, float]] = []
        for _ in range(WARM_UP):
            self.step()

    def _noise(self) -> tuple[float, float, float]:
        """Log factor and added ms of a step, and the normal that moves its load."""
        if not self._drawn:
            machine, rng, size = self.machine, self.rng, 1024
            factor = rng.normal(0, machine.noise, size)
            if machine.tail:
                factor += (rng.random(size) < machine.tail) * np.log1p(rng.pareto(2.5, size))
            added = np.where(rng.random(size) < machine.lapses, 70.0 + rng.exponential(30.0, size), 0.0)
            self._drawn = list(
                zip(factor.tolist(), added.tolist(), rng.normal(0, 1, size).tolist(), strict=True)
            )
        return self._drawn.pop()

    def step(self) -> Batch:
        """Serve what is due."""
        phases, sessions, first = self.phases, len(self.phases), self.next
        due = phases[first % sessions] + (first // sessions + 1) * PERIOD_MS
        begin = max(due, self.free_ms)
        whole, part = divmod(begin / PERIOD_MS - 1 + 1e-12, 1.0)
        batch = max(
            1, min(int(whole) * sessions + bisect_right(phases, part * PERIOD_MS + 1e-6) - first, sessions)
        )
        cost = self._cost_ms(batch, begin, begin - self.free_ms)
        end = begin + cost
        self.next, self.free_ms = first + batch, end
        middle = first + batch // 2
        median = end - (phases[middle % sessions] + (middle // sessions + 1) * PERIOD_MS)
        late = self._due_before(end - PERIOD_MS) - first
        self.behind |= end - due > BACKLOG_FRAMES * PERIOD_MS
        return Batch(end / 1e3, batch, min(batch, max(0, late)), end - due, median)

    def _due_before(self, at_ms: float) -> int:
        whole, part = divmod(at_ms / PERIOD_MS - 1, 1.0)
        return int(whole) * len(self.phases) + bisect_right(self.phases, part * PERIOD_MS)

    def _cost_ms(self, batch: int, at_ms: float, idle_ms: float) -> float:
        machine, now_s = self.machine, self.began_s + at_ms / 1e3
        factor, added, move = self._noise()
        kept = math.exp(-(max(0.0, idle_ms) + self._costs[batch]) / 4e3)
        self._load = kept * self._load + math.sqrt(1 - kept * kept) * machine.turns * move
        cost = self._costs[batch] * math.exp(factor + self._load + self._engine + machine.drift * now_s / 60)
        if machine.burst and (now_s + self.phase_s) % machine.burst[1] < machine.burst[0]:
            cost *= machine.burst[2]
        return cost + added


class SimulatedMachine:
    """One machine in the course of one command. `now_s`: since its start; trials and the search's parts move it."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.machine, self.rng = machine, np.random.default_rng([5, seed])
        self.now_s, self._phase_s = 5.0, float(self.rng.uniform(0, 30))  # 5 s: the model was loaded

    def run(self, sessions: int) -> SimulatedRun:
        """A new engine with so many sessions, at the present instant."""
        return SimulatedRun(self.machine, sessions, self.rng, self.now_s + SET_UP_S, self._phase_s)

    def trial(
        self, sessions: int, least_s: float, most_s: float, *, settle: bool, most: int = 10**6
    ) -> SimulatedTrial:
        """Ends at `most_s` or after `most` batches; with `settle` once it is refuted, or proved after `least_s`."""
        run, batches, verdict, look_s = self.run(sessions), [], "inconclusive", 0.0
        start_s = run.free_ms / 1e3
        while not run.behind and run.free_ms / 1e3 < start_s + most_s and len(batches) < most:
            batches.append(run.step())
            if run.free_ms / 1e3 - start_s >= look_s + 1.0:
                look_s += 1.0
                verdict = judged(batches)
                if settle and (verdict == "fail" or (verdict == "pass" and look_s >= least_s)):
                    break
                if settle and len(batches) >= FAIR and missing(batches) > most:
                    break
        took_s = SET_UP_S + run.free_ms / 1e3
        self.now_s += took_s
        return SimulatedTrial(sessions, batches, "fail" if run.behind else judged(batches), took_s)


def missing(batches: list[Batch]) -> int:
    """Batches in all after which those that were bad so far would be made up for."""
    bad = sum(b.late / b.frames for b in batches)
    return 0 if not bad else math.ceil(betaincinv(bad + 1, 1e6, 0.999) * 1e6 / SHARE)


def judged(batches: list[Batch]) -> str:
    """The verdict on p99 < deadline at 99 %: batches as clusters, repeated evaluation at a tenth of the error."""
    frames, late = sum(b.frames for b in batches), sum(b.late for b in batches)
    n = frames * frames / sum(b.frames * b.frames for b in batches)
    bad = n * late / frames
    if lower_bound(bad, n, 0.999) > SHARE:
        return "fail"
    return "pass" if upper_bound(bad, n, 0.999 if bad else 0.99) <= SHARE else "inconclusive"


def late_share(machine: Machine, sessions: int, trials: int = 60, each_s: float = 20.0) -> float:
    """The true share of late frames, over `trials` engines and every phase of a burst."""
    rng, late, frames = np.random.default_rng(sessions), 0, 0
    for phase_s in np.linspace(0, 30, trials, endpoint=False):
        run = SimulatedRun(machine, sessions, rng, 13.0, float(phase_s))
        end_ms = run.free_ms + each_s * 1e3
        while run.free_ms < end_ms:
            if run.behind:
                return 1.0
            batch = run.step()
            late, frames = late + batch.late, frames + batch.frames
    return late / frames


def true_sessions(machine: Machine, trials: int = 60) -> int:
    """The largest number of sessions that keeps the share of late frames within the objective; 0: none does."""
    low, high = 0, machine.ceiling + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if late_share(machine, middle, trials) <= SHARE else (low, middle)
    return low


def undisturbed(machine: Machine) -> Machine:
    """The same machine without interference."""
    return replace(machine, lapses=0.0, burst=None)
