"""Do the real and the virtual clock agree? The same sessions on each in turns, and one search on each.

    python benchmarks/clocks.py [--profile default] [--sessions 60] [--turns 6] [--searches 1]

At one N below the edge the two must show the same latency: reported are the medians over the turns of p50 and p99
and their ratio. At the edge a search is a draw of a few late steps, so two searches agree when what each leaves
possible, from its safe number to its failing one, overlaps. On a busy machine neither is worth much.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace
from typing import Literal

from metronome_cli.config.loading import load_profile
from metronome_cli.report.model import Report
from metronome_cli.run.capacity import CapacityPlan, run_capacity

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


def searched(plan: CapacityPlan) -> bool:
    """Print one search on each clock; whether what they leave possible overlaps."""
    spans = []
    for clock in CLOCKS:
        report = run_capacity(replace(plan, clock=clock, sessions=None))
        print(f"{clock:8} {report.answer}", flush=True)
        spans.append(span_of(report))
    (low_a, high_a), (low_b, high_b) = spans
    return low_a < high_b and low_b < high_a


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
    args = parser.parse_args()
    plan = CapacityPlan(profile=load_profile(args.profile), sessions=args.sessions, confirm_steps=1)
    if args.turns:
        same_sessions(plan, args.turns)
    agreed = [searched(replace(plan, seed=seed)) for seed in range(args.searches)]
    print(f"searches that agree: {sum(agreed)} of {len(agreed)}")
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    sys.exit(main())
