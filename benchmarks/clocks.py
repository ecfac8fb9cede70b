"""Do the real and the virtual clock agree? One model, the same sessions on each clock, in turns.

    python benchmarks/clocks.py [--profile default] [--turns 6] [--slo 'p50<30ms'] [--slo 'p99<80ms'] [--sessions 40]

Each objective is searched on both clocks at once: the number of sessions doubles until neither clock holds it, then
the gap of either is halved down to the search's step, 5 %. At each number both clocks take turns of 150 steps, so that
an hour in which the machine is slow is slow for both, and the steps of a clock's turns are counted together. A minute
that was slow for one number of sessions must not decide, so the shares of frames over the limit are made to rise with
the number (isotonic regression, weighted by steps); N* is the largest number at which no more of them are over it than
the objective allows. With `--sessions`, latency at that one number too: medians over the turns, and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from scipy.optimize import isotonic_regression

from metronome_cli.audio.open_audio import open_audio
from metronome_cli.backends.in_process.backend import InProcessBackend
from metronome_cli.backends.in_process.loading import load_model
from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.clock import ClockName
from metronome_cli.core.stop import StopRequest
from metronome_cli.measure.objective import Objective
from metronome_cli.measure.verdict import allowed_share
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.events import ObserverGroup

CLOCKS: tuple[ClockName, ...] = ("real", "virtual")
STEPS = 150
MOST = 512


@dataclass(slots=True)
class Seen:
    """What one clock showed at one number of sessions, over all turns."""

    points: list[TrialResult] = field(default_factory=list)
    frames: int = 0
    over: dict[float, int] = field(default_factory=dict)  # frames by the limit that they passed, ms

    def share_over(self, objective: Objective) -> float:
        """Of the frames, how many were over the objective's limit."""
        return self.over[objective.limit] / self.frames

    def median_ms(self, quantile: str) -> float:
        """Median over the turns of a latency percentile."""
        return statistics.median(getattr(point.latency_ms, quantile) for point in self.points)


class Bench:
    """One model, and a context for each clock; what was seen is kept, since objectives share it."""

    def __init__(self, profile_name: str, objectives: list[Objective], turns: int) -> None:
        profile, observer = load_profile(profile_name), ObserverGroup()
        streams, _ = open_audio((), profile.frame, 0, observer)
        model = load_model(profile, device="cpu", seed=0, weights=None, observer=observer)
        self._turns = turns
        self._seen: dict[int, dict[str, Seen]] = {}
        self._contexts = [
            TrialContext(
                backend=InProcessBackend(model.fresh_engine, profile),
                profile=profile,
                audio=streams,
                objectives=objectives,
                clock=clock,
                batching="continuous",
                session_length_s=600.0,
                seed=0,
                observer=observer,
                stop=StopRequest(),
                max_sessions=MOST,
            )
            for clock in CLOCKS
        ]

    def at(self, sessions: int) -> dict[str, Seen]:
        """Both clocks at one number of sessions, in turns."""
        if sessions not in self._seen:
            seen = self._seen[sessions] = {clock: Seen() for clock in CLOCKS}
            for turn in range(self._turns):
                for context in self._contexts if turn % 2 == 0 else reversed(self._contexts):
                    self._take(context, sessions, seen[context.clock])
        return self._seen[sessions]

    def _take(self, context: TrialContext, sessions: int, seen: Seen) -> None:
        plan = TrialPlan(sessions, "screen", max_batches=STEPS, until="end")
        outcome = Trial(context, plan).run(into=[])
        seen.points.append(outcome.result)
        total = outcome.evidence.total
        seen.frames += total.frames
        for limit, over in zip(total.limits_ms, total.over, strict=True):
            seen.over[limit] = seen.over.get(limit, 0) + over

    def search(self, objective: Objective) -> tuple[dict[ClockName, int], int]:
        """Each clock's largest number of sessions that held, and the step of the search."""
        met: list[int] = []
        for sessions in self._numbers(objective, met):
            seen = self.at(sessions)
            met.append(sessions)
            lines = "  ".join(f"{clock} {seen[clock].share_over(objective):6.2%}" for clock in CLOCKS)
            print(f"  {sessions:3}  frames over {objective.limit:g} ms: {lines}", flush=True)
        found = {clock: self._bracket(objective, clock, met)[0] for clock in CLOCKS}
        return found, _step(max(found.values()))

    def _numbers(self, objective: Objective, met: list[int]) -> Iterator[int]:
        sessions = 8
        while sessions <= MOST and any(self._bracket(objective, clock, met)[1] is None for clock in CLOCKS):
            yield sessions
            sessions *= 2
        for clock in CLOCKS:
            good, bad = self._bracket(objective, clock, met)
            while bad is not None and bad - good > _step(good):
                yield (good + bad) // 2
                good, bad = self._bracket(objective, clock, met)

    def _bracket(self, objective: Objective, clock: str, met: list[int]) -> tuple[int, int | None]:
        """The largest number that holds and the next one that was met; of the shares that rise with the number."""
        if not met:
            return 0, None
        numbers = sorted(met)
        seen = [self._seen[n][clock] for n in numbers]
        rising = isotonic_regression(
            [one.share_over(objective) for one in seen], weights=[one.frames for one in seen]
        ).x
        allowed = allowed_share(objective) or 0.0
        good = max((n for n, share in zip(numbers, rising, strict=True) if share <= allowed), default=0)
        return good, next((n for n in numbers if n > good), None)


def _step(sessions: int) -> int:
    return max(1, round(0.05 * sessions))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="default")
    parser.add_argument("--sessions", type=int, help="also compare latency at this number")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--slo", action="append", help="objectives on a percentile; p99<80ms without")
    args = parser.parse_args()
    objectives = [Objective.parse(text) for text in args.slo or ["p99<80ms"]]
    bench = Bench(args.profile, objectives, args.turns)
    if args.sessions:
        seen = bench.at(args.sessions)
        for name in ("p50", "p99"):
            real, virtual = (seen[clock].median_ms(name) for clock in CLOCKS)
            print(f"{args.sessions} sessions: {name} real {real:.1f} ms, virtual {virtual:.1f} ms, "
                  f"virtual/real {virtual / real:.3f}", flush=True)  # fmt: skip
    agree = True
    for objective in objectives:
        print(f"{objective}", flush=True)
        found, step = bench.search(objective)
        within = abs(found["real"] - found["virtual"]) <= step
        agree = agree and within
        print(f"{objective}: N* real {found['real']}, virtual {found['virtual']}; step {step}: "
              f"{'agree' if within else 'differ'}", flush=True)  # fmt: skip
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
