"""How well a search finds a known N*: estimate, interval and claims on simulated machines with known truth.

What: for each machine, searches with different seeds; the truth is the largest number of sessions whose share of late
frames over many long trials is within the objective. Left out: what no simulation has, such as memory and a server.
Known error: the constants of the estimator were chosen on these machines.

    python -m benchmarks.nstar [--seeds 200] [--only NAME ...] [--processes 1] [--trace]

One line per machine. `covers`: share of runs whose 90 % interval holds the truth. `width`: median of half the
interval over the truth. `wrong`: share of runs with a safe number above the truth, and with a failing one at most it.
`none`: share of runs without a safe, and without a failing number. `ratio`: failing over safe, median and 90th
percentile. Seconds are the machine's; `cpu` is this process's, per search.
"""

from __future__ import annotations

import argparse
import time
from multiprocessing import Pool

import numpy as np

from tests.capacity.simulated_machine import MACHINES, true_sessions
from tests.capacity.simulated_search import Searched, search

HEAD = (
    f"{'machine':19s} {'N*':>3s}  {'estimate':12s} covers width  {'safe':12s} error {'none':9s} {'ratio':10s} "
    f"{'wrong':11s} {'undisturbed':12s} disturbed  seconds  cpu"
)


def _one(task: tuple[str, int]) -> tuple[Searched, float]:
    began_s = time.process_time()
    return search(MACHINES[task[0]], task[1]), time.process_time() - began_s


def _spread(values: list[float]) -> str:
    return "/".join(f"{np.percentile(values, p):.0f}" for p in (10, 50, 90)) if values else "-"


def row(name: str, truth: int, runs: list[Searched]) -> str:
    """One machine's line, without the time that it took."""
    found = [run.found for run in runs]
    intervals = [one.estimate for one in found if one.estimate is not None]
    covers = np.mean([one.low <= truth <= one.high for one in intervals])
    width = np.median([(one.high - one.low) / 2 for one in intervals]) / max(1, truth)
    safe = [one.safe for one in found if one.safe is not None]
    ratios = [one.first_failing / one.safe for one in found if one.safe and one.first_failing]
    wrong = np.mean([one.safe is not None and one.safe > truth for one in found])
    wrong_failing = np.mean([one.first_failing is not None and one.first_failing <= truth for one in found])
    none = np.mean([one.safe is None for one in found]), np.mean([one.first_failing is None for one in found])
    error = np.median([abs(n - truth) / max(1, truth) for n in safe]) if safe else float("nan")
    ratio = f"{np.median(ratios):.2f}, {np.percentile(ratios, 90):.2f}" if ratios else "-"
    calm = _spread([one.undisturbed.sessions for one in found if one.undisturbed is not None])
    return (
        f"{name:19s} {truth:3d}  {_spread([one.sessions for one in intervals]):12s} {covers:6.2f} {width:5.2f}  "
        f"{_spread(list(map(float, safe))):12s} {error:5.2f} {none[0]:.2f} {none[1]:.2f} {ratio:10s} "
        f"{wrong:.3f} {wrong_failing:.3f} {calm:12s} {np.mean([one.disturbed_s >= 1 for one in found]):9.2f}  "
        f"{np.percentile([run.took_s for run in runs], 50):.0f} {np.max([run.took_s for run in runs]):.0f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=list(MACHINES))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="print every run's trials")
    args = parser.parse_args()
    print(HEAD)
    with Pool(args.processes) as pool:
        for name in args.only:
            truth = true_sessions(MACHINES[name])
            results = pool.map(_one, [(name, seed) for seed in range(args.seeds)], chunksize=4)
            runs = [run for run, _ in results]
            print(row(name, truth, runs), f"{np.mean([cpu for _, cpu in results]):.2f}", flush=True)
            for seed, run in enumerate(runs if args.trace else []):
                found = run.found
                trials = [
                    (t.purpose[0], t.sessions, t.verdict[0], t.batches, t.late_batches) for t in run.trials
                ]
                print("   ", seed, found.estimate, found.safe, found.first_failing, found.undecided, trials)


if __name__ == "__main__":
    main()
