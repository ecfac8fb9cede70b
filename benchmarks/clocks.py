"""Do the real and the virtual clock agree? The same sessions on each in turns, and one search on each.

    python benchmarks/clocks.py [--profile default] [--sessions 60] [--turns 6] [--searches 1] [--slo 'p50<35ms']

At one N below the edge the two must show the same latency: reported are the medians over the turns of p50 and p99
and their ratio. A search under an objective on the median finds the load; under one on p99 its edge is a draw of a few
late steps, which differ from run to run on one clock too. Two searches agree when their safe numbers are no further
apart than one step, and overlap when what each leaves possible, from its safe number to its failing one, does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace
from typing import Literal

from metronome_cli.config.loading import load_profile
from metronome_cli.config.objectives import Objective
from metronome_cli.report.model import Report
from metronome_cli.run.capacity import run_capacity
from metronome_cli.run.capacity_plan import CapacityPlan

CLOCKS: tuple[Literal["real", "virtual"], ...] = ("real", "virtual")


def same_sessions(plan: CapacityPlan, turns: int) -> None:
    """Print p50 and p99 at one N on both clocks, and their ratio."""
    seen: dict[str, list[tuple[float, float]]] = {clock: [] for clock in CLOCKS}
    for turn in range(turns):
        for clock in CLOCKS:
            report = run_capacity(replace(plan, clock=clock, seed=turn))
            assert report.capacity is not None
            latency = report.capacity.points[0].latency_ms
            seen[clock].append((latency.p50 or 0.0, latency.p99 or 0.0))
    for index, name in enumerate(("p50", "p99")):
        real, virtual = (statistics.median(pair[index] for pair in seen[clock]) for clock in CLOCKS)
        print(f"{plan.sessions} sessions: {name} real {real:.1f} ms, virtual {virtual:.1f} ms, "
              f"virtual/real {virtual / real:.3f}", flush=True)  # fmt: skip


def searched(plan: CapacityPlan) -> tuple[bool, bool]:
    """Print one search on each clock; whether they agree within a step, and whether what they leave overlaps."""
    found = []
    for clock in CLOCKS:
        report = run_capacity(replace(plan, clock=clock, sessions=None))
        print(f"{clock:8} {report.answer}", flush=True)
        assert report.capacity is not None
        found.append((span_of(report), report.capacity.step))
    ((low_a, high_a), step_a), ((low_b, high_b), step_b) = found
    return abs(low_a - low_b) <= max(step_a, step_b), low_a < high_b and low_b < high_a


def span_of(report: Report) -> tuple[float, float]:
    """From the safe number of sessions to the failing one."""
    assert report.capacity is not None
    failing = report.capacity.first_failing
    return float(report.capacity.safe_sessions or 0), float("inf") if failing is None else float(failing)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="default")
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--searches", type=int, default=1)
    parser.add_argument(
        "--slo", action="append", default=[], help="objectives of the searches; the profile's without"
    )
    args = parser.parse_args()
    plan = CapacityPlan(profile=load_profile(args.profile), sessions=args.sessions, confirm_steps=1)
    if args.turns:
        same_sessions(plan, args.turns)
    plan = replace(plan, objectives=tuple(map(Objective.parse, args.slo)), confirm_steps=1000)
    pairs = [searched(replace(plan, seed=seed)) for seed in range(args.searches)]
    agreed, overlapping = sum(agree for agree, _ in pairs), sum(overlap for _, overlap in pairs)
    print(f"searches that agree within a step: {agreed} of {len(pairs)}; that overlap: {overlapping}")
    return 0 if overlapping == len(pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
