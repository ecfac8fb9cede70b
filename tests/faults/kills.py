"""Kills real runs at random instants, and rebuilds each one's report from what it left.

    python -m tests.faults.kills [--count 40] [--seed 0]

One line a kill: when, how many lines its events file had, and what `metronome report` made of it.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from metronome_cli.report.event_log import EVENTS_FILE
from tests.faults.runs import SMOKE, call, start, wait_for_events

LONGEST_S = 8.0


def killed(directory, rng):
    """Kill one run: at some line of its events file, then some milliseconds on. What is left of it, in words."""
    process = start(*SMOKE, "--seed", rng.randrange(1000), "--output", directory)
    try:
        wait_for_events(directory, rng.choice([1, 2, 3, rng.randrange(4, 60)]), process)
        time.sleep(rng.choice([0.0, rng.random() * 0.05, rng.random() * LONGEST_S]))
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return report_of(directory)


def report_of(directory):
    """ "interrupted" or "complete", as the report that is made of the directory says, or "nothing" was begun."""
    code, out, err = call("report", directory, "--json")
    if code == 2 and ("neither" in err or "ends before the run began" in err):
        return "nothing"
    assert code == 0, err
    report = json.loads(out)
    judged = [line for line in events(directory) if line.get("kind") == "trial"]
    points = (report["capacity"] or {"trials": []})["trials"]
    assert len(points) >= len(judged)
    assert [point["sessions"] for point in points][: len(judged)] == [e["data"]["sessions"] for e in judged]
    if report["status"] == "interrupted":
        assert report["verdict"] != "pass" or report["capacity"]["method"] == "single"
    return report["status"]


def events(directory):
    """The whole lines of its events file."""
    lines = (directory / EVENTS_FILE).read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng, outcomes = random.Random(args.seed), Counter()
    for kill in range(args.count):
        with tempfile.TemporaryDirectory() as directory:
            found = killed(Path(directory), rng)
            file = Path(directory) / EVENTS_FILE
            lines = file.read_bytes().count(b"\n") if file.exists() else 0
            print(f"kill {kill + 1}: {lines} lines, {found}", flush=True)
        outcomes[found] += 1
    print(f"{args.count} runs killed: {dict(outcomes)}")


if __name__ == "__main__":
    sys.exit(main())
