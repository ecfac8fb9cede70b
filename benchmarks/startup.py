"""How long `metronome --help` and its like take: `python benchmarks/startup.py [--repeats N]`.

Measured: wall time of a whole process, from spawn to exit, least and median of N; the first, which compiles and reads
from disk, is left out. Target: `--help` under 0.4 s. Known error: whatever else the machine does; take the least.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

TARGET_S = 0.4
CALLS = (
    ["--help"],
    ["--version"],
    ["capacity", "--help"],
    ["profiles", "list"],
    ["profiles", "show", "moshi"],
)


def once(arguments: list[str]) -> float:
    """Seconds of one process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "metronome_cli", *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> int:
    """A line for each call; 1 when help takes longer than the target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    least: dict[str, float] = {}
    for arguments in CALLS:
        once(arguments)
        times = [once(arguments) for _ in range(repeats)]
        name = "metronome " + " ".join(arguments)
        least[name] = min(times)
        print(f"{name:30} least {min(times) * 1e3:6.0f} ms   median {statistics.median(times) * 1e3:6.0f} ms")
    return 0 if least["metronome --help"] <= TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
