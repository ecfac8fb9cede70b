"""Do the real and the virtual clock find the same capacity? One search on each, in turns, on the same profile.

    python benchmarks/clocks.py [--profile default] [--repeats 1]

Agreement is |N_real - N_virtual| <= the larger resolution of the two searches. On a machine that is busy with other
things neither search is worth much: run it on a quiet one.
"""

from __future__ import annotations

import argparse
import sys
from typing import Literal

from metronome_cli.config.loading import load_profile
from metronome_cli.run.capacity import CapacityPlan, run_capacity


def search(profile: str, clock: Literal["real", "virtual"], seed: int) -> tuple[int | None, int, str]:
    """(safe sessions, resolution, the answer)."""
    report = run_capacity(CapacityPlan(profile=load_profile(profile), clock=clock, seed=seed))
    assert report.capacity is not None
    return report.capacity.safe_sessions, report.capacity.step, report.answer


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="default")
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()
    agreed = True
    for seed in range(args.repeats):
        found = {}
        for clock in ("real", "virtual"):
            safe, step, answer = search(args.profile, clock, seed)
            found[clock] = (safe, step)
            print(f"{clock:8} {answer}", flush=True)
        (real, a), (virtual, b) = found["real"], found["virtual"]
        if real is None or virtual is None:
            print("no agreement to judge: a search found nothing")
            agreed = False
            continue
        close = abs(real - virtual) <= max(a, b)
        agreed &= close
        print(f"real {real}, virtual {virtual}, resolution {max(a, b)}: {'agree' if close else 'differ'}")
    return 0 if agreed else 3


if __name__ == "__main__":
    sys.exit(main())
