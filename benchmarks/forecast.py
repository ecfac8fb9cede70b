"""How well `predict` forecasts a collapse: many collapses of the in-process engine, each forecast twice.

Every case draws at random a number of sessions, a token mix, a turn-taking, a block size and a pool,
within the ranges of `draw`. The engine then really serves the sessions on the virtual clock (a decoder of
one small layer: the pool does not care what is computed) until one finds no block; that instant is the
truth. `--played` counts the blocks of the same turns and frames without the engine: the same trace, to the
block, a hundred times as fast. Forecast

- from the profile alone, before anything runs;
- from the first 30 % of the run's occupancy, two samples a second, knowing nothing of the profile.

Reported of either: error of t_sat (median, 90th percentile, maximum) and the share of runs in which the
truth lies within the stated 90 % interval, with the binomial interval of that share (a run that was not
forecast to fill counts as outside); of the trace also for pools in which a session fills `MANY_BLOCKS` and
more, as it does in practice: with fewer, occupancy is a staircase. `floor`: the error that is left to one
who knows all positions of the first 30 %, from a start at 0, and how blocks round them, but not the profile:
who speaks when, later on, and how typical the first 30 % were. What is left out: servers that fall behind
(steps take no time, so that a busy machine finds the same truth); other arrivals than all at once.

    python benchmarks/forecast.py --cases 200 --seed 1 --json
    python benchmarks/forecast.py --cases 200 --seed 1 2 --played --json
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from metronome_cli.backends.in_process.run import StepRun
from metronome_cli.backends.interface import RunSetup
from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import VirtualClock
from metronome_cli.forecast.extrapolation import Extrapolation, extrapolate
from metronome_cli.forecast.occupancy_trace import clean_trace
from metronome_cli.forecast.pool_forecast import ForecastQuery, PoolBudget, forecast_pool
from metronome_cli.load.arrivals import at_once
from metronome_cli.load.turn_taking import DrawnTurns
from metronome_cli.load.workload import Workload
from metronome_cli.measure.confidence import binomial_interval

RATE, FITTED, PHASES, SAMPLED_S = 16_000, 0.3, 2, 0.5
LONGEST_S = 300.0  # of a run that is played
MANY_BLOCKS = 40


@dataclass(frozen=True, slots=True)
class Case:
    """One set of conditions, and the seed of its turns."""

    profile: Profile
    sessions: int
    seed: int


@dataclass(frozen=True, slots=True)
class ForecastError:
    """One forecast beside what happened; seconds."""

    truth_s: float
    estimate_s: float
    low_s: float
    high_s: float

    @property
    def error(self) -> float:
        return abs(self.estimate_s / self.truth_s - 1)

    @property
    def held(self) -> bool:
        return math.isfinite(self.estimate_s) and self.low_s <= self.truth_s <= self.high_s


class Silence:
    """Silent audio, and two phases in the period, so that a step batches half of the sessions."""

    def __init__(self, profile: Profile) -> None:
        self._frame = np.zeros(profile.frame.samples, dtype=np.float32)
        self._period_s = profile.frame.period_s

    def stream(self, index: int) -> Silence:
        return self

    def frame(self, k: int) -> Any:
        return self._frame

    def phase_s(self, index: int) -> float:
        return (index % PHASES + 0.5) / PHASES * self._period_s


class Timeless(VirtualClock):
    """Steps take no time on it."""

    def spent(self, seconds: float) -> None:
        pass


def draw(rng: np.random.Generator, number: int) -> Case:
    """Conditions in which the pool is full after about 30 to 90 s."""
    period_ms = int(rng.choice([320, 480, 960]))
    sessions, block = int(rng.integers(16, 129)), int(rng.choice([8, 16, 32]))
    into, listening = int(rng.choice([2, 4, 8, 16])), int(rng.integers(0, 3))
    speaking, share = listening + int(rng.integers(2, 13)), float(rng.uniform(0.2, 0.8))
    a_second = (into + share * speaking + (1 - share) * listening) / period_ms * 1e3
    blocks = round(sessions * a_second * rng.uniform(30, 90) / block)
    fields = {
        "name": f"case-{number}",
        "title": "Random case",
        "adapter": "speech-lm",
        "adapter_options": {"encoder_width": 8, "encoder_blocks": 1},
        "frame": {"period": f"{period_ms}ms", "sample_rate": RATE},
        "tokens": {"into": into, "out": {"listening": listening, "speaking": speaking}},
        "turns": {"speaking_share": share, "turn": f"{rng.uniform(2, 10):.3f}s"},
        "shape": {
            "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 8, "hidden": 8, "mlp": 8, "vocab": 16,
            "dtype": "float32", "context": 10**6,
        },
        "pool": {"blocks": blocks, "block_tokens": block},
        "policy": "unbounded",
    }  # fmt: skip
    return Case(Profile.model_validate(fields), sessions, int(rng.integers(1 << 30)))


def live_through(case: Case) -> tuple[float, list[tuple[float, float]]]:
    """Serve the sessions until one finds no block: that instant, and (time, occupancy) twice a second."""
    from metronome_cli.backends.in_process.engine import InProcessModel

    profile = case.profile
    engine = InProcessModel.load(profile, device="cpu", seed=0).fresh_engine(profile, case.sessions)
    turns = profile.turn_taking
    workload = Workload(
        Silence(profile), lambda i: DrawnTurns(turns.speaking_share, turns.mean_turn, case.seed + i)
    )
    setup = RunSetup(
        profile,
        workload,
        case.sessions,
        "virtual",
        "continuous",
        case.seed,
        lambda event: None,
        lambda: False,
    )
    run = StepRun(engine, setup)
    run.clock = Timeless()
    for index, session in enumerate(at_once([0.0] * case.sessions)):
        run.open(replace(session, index=index))
    run.begin()
    samples, now_s = [], 0.0
    while (full_s := run.stats().pool_full_s) is None:
        now_s += SAMPLED_S
        run.run_until(now_s)
        samples.append((now_s, engine.pool().occupancy))
    return full_s, samples


def positions(case: Case) -> tuple[Any, Any]:
    """[sessions, frames] positions in the cache after each frame, and when it is due.

    The last token of a frame enters the cache with the next one.
    """
    profile, period_s = case.profile, case.profile.frame.period_s
    out, turns, frames = (
        profile.tokens.decode,
        profile.turn_taking,
        math.ceil(LONGEST_S / case.profile.frame.period_s),
    )
    plans = (DrawnTurns(turns.speaking_share, turns.mean_turn, case.seed + i) for i in range(case.sessions))
    lengths = [plan.runs(0.0, period_s, frames) for plan in plans]
    speaks = np.array([np.repeat(np.arange(len(each)) % 2, each) for each in lengths])
    tokens = np.where(speaks, out.speaking, out.listening)
    heard = profile.tokens.prefill * np.arange(1, frames + 1)
    phases_s = np.array([Silence(profile).phase_s(i) for i in range(case.sessions)])
    due_s = phases_s[:, None] + np.arange(1, frames + 1) * period_s
    return heard + np.cumsum(tokens, axis=1) - (tokens > 0), due_s


def play(case: Case) -> tuple[float, list[tuple[float, float]]]:
    """What `live_through` gives, counted."""
    pool = case.profile.kv_pool
    assert pool is not None
    held, due_s = positions(case)
    gained = np.diff(-(-held // pool.block_size), axis=1, prepend=0)
    order = np.argsort(due_s, axis=None, kind="stable")
    at_s, used = due_s.ravel()[order], np.cumsum(gained.ravel()[order])
    full_s = float(at_s[np.argmax(used > pool.blocks)])
    times = np.arange(SAMPLED_S, full_s, SAMPLED_S)
    levels = np.concatenate(([0], used))[np.searchsorted(at_s, times)] / pool.blocks
    return full_s, list(zip(times.tolist(), levels.tolist(), strict=True))


def from_positions(case: Case, truth_s: float) -> ForecastError:
    """Mean positions a frame so far, carried on to the positions at which rounding fills the pool."""
    pool, period_s = case.profile.kv_pool, case.profile.frame.period_s
    assert pool is not None
    held, due_s = positions(case)
    served = (due_s <= FITTED * truth_s).sum(axis=1)
    so_far = np.take_along_axis(held, served[:, None] - 1, axis=1).sum()
    filling = (pool.blocks - case.sessions / 2) * pool.block_size  # half a block a session is not used
    frames = filling / (so_far / served.sum()) / case.sessions
    return ForecastError(
        truth_s, float(frames + 1) * period_s, 0.0, math.inf
    )  # phases: half a period on average


def from_profile(case: Case, truth_s: float) -> ForecastError:
    found = forecast_pool(
        ForecastQuery(case.profile, case.sessions, truth_s, PoolBudget.of(case.profile))
    ).t_sat
    assert found.estimate is not None
    return ForecastError(truth_s, found.estimate, found.low or 0.0, found.high or math.inf)


def from_trace(samples: list[tuple[float, float]], truth_s: float) -> ForecastError:
    early = [sample for sample in samples if sample[0] <= FITTED * truth_s]
    found: Extrapolation = extrapolate(clean_trace(early))
    return ForecastError(truth_s, found.t_sat_s or math.inf, found.low_s or 0.0, found.high_s or math.inf)


def errors(forecasts: list[ForecastError]) -> dict[str, Any]:
    found = np.array([one.error for one in forecasts])
    return {
        "cases": len(forecasts),
        "no_forecast": int(np.isinf(found).sum()),
        "error_median": float(np.median(found)),
        "error_p90": float(np.quantile(found, 0.9)),
        "error_max": float(found[np.isfinite(found)].max()),
    }


def summary(forecasts: list[ForecastError]) -> dict[str, Any]:
    held = sum(one.held for one in forecasts)
    low, high = binomial_interval(held, len(forecasts))
    return {
        **errors(forecasts),
        "coverage": held / len(forecasts),
        "coverage_low": low,
        "coverage_high": high,
        "width_median": float(np.median([(one.high_s - one.low_s) / one.truth_s for one in forecasts])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=200, help="of each seed")
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--played", action="store_true", help="without the engine")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    known: list[ForecastError] = []
    traced: list[ForecastError] = []
    floor: list[ForecastError] = []
    each: list[float] = []  # blocks that a session fills until the pool is full
    for case in cases(given.seed, given.cases):
        truth_s, samples = play(case) if given.played else live_through(case)
        assert case.profile.kv_pool is not None
        each.append((case.profile.kv_pool.blocks or 0) / case.sessions)
        known.append(from_profile(case, truth_s))
        traced.append(from_trace(samples, truth_s))
        floor.append(from_positions(case, truth_s))
        if not given.json:
            print(
                f"{case.profile.name:8} N {case.sessions:3}  full at {truth_s:7.2f} s  "
                f"profile {known[-1].error:6.2%} {'held' if known[-1].held else 'out '}  "
                f"trace {traced[-1].error:6.2%} {'held' if traced[-1].held else 'out '}",
                flush=True,
            )
    result = {"seed": given.seed, "from_profile": summary(known), "from_trace": summary(traced)}
    many = [one for one, blocks in zip(traced, each, strict=True) if blocks >= MANY_BLOCKS]
    if many:
        result["from_trace_of_many_blocks"] = summary(many)
    result["floor"] = errors(floor)
    print(json.dumps(result, indent=2))


def cases(seeds: list[int], count: int) -> Iterator[Case]:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        yield from (draw(rng, number) for number in range(count))


if __name__ == "__main__":
    main()
