"""Fuzzing on a grand scale, with a table of what was tried.

    python -m tests.fuzz [--inputs 100000] [--only NAME] [--part 0/1] [--seed 0]

`--part 1/4` tries every fourth target, beginning with the second, each as often as in the whole run. Every input is
counted when its check begins. One that breaks something is made small by hypothesis, printed, and its target is left
there; the others go on. Exits non-zero when anything broke.
"""

import argparse
import faulthandler
import math
import signal
import sys
import threading
import time
import traceback

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.targets import targets

LONGEST_S = 10.0
ASKED = threading.Event()  # to end
BATCH = 2000  # inputs a hypothesis run: it remembers what it tried


class TooLongError(Exception):
    """An input that took more than ten seconds of processor time."""


class StoppedError(BaseException):
    """Asked to end: what was tried until then is in the table."""


class Tried:
    """One target: its inputs, counted and timed."""

    def __init__(self, target):
        self.target = target
        self.inputs = 0
        self.longest_s = 0.0
        self.fault = None

    def check(self, value):
        self.inputs += 1
        began_s = time.process_time()  # a busy machine is no slow check
        signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
        try:
            self.target.check(value)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.longest_s = max(self.longest_s, time.process_time() - began_s)

    def run(self, inputs, number):
        """Until so many inputs were tried, or one broke something."""
        while self.inputs < inputs and self.fault is None:
            left = min(BATCH, inputs - self.inputs)
            try:
                self._batch(left, number)
            except BaseException as error:
                if ASKED.is_set():  # hypothesis may make another error of it
                    raise StoppedError from None
                self.fault = error
                traceback.print_exception(error, limit=-6, chain=False)
            number += 1

    def _batch(self, inputs, number):
        @seed(number)
        @settings(
            max_examples=inputs,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        @given(self.target.inputs)
        def fuzz(value):
            self.check(value)

        fuzz()


def too_long(signum, frame):
    raise TooLongError


def stop(signum, frame):
    ASKED.set()
    raise StoppedError


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    signal.signal(signal.SIGPROF, too_long)
    signal.signal(signal.SIGTERM, stop)
    faulthandler.enable()
    chosen = [target for target in targets() if args.only in target.name]
    shares = sum(target.share for target in chosen)
    part, parts = map(int, args.part.split("/"))
    chosen = chosen[part::parts]
    print("| input | inputs | seconds | longest, ms | faults |\n|---|---|---|---|---|", flush=True)
    tried, stopped = [], False
    for number, target in enumerate(chosen):
        one = Tried(target)
        began_s = time.perf_counter()
        faulthandler.dump_traceback_later(1200, exit=True)
        try:
            one.run(math.ceil(args.inputs * target.share / shares), args.seed + 1000 * number)
        except StoppedError:
            stopped = True
        faulthandler.cancel_dump_traceback_later()
        tried.append(one)
        fault = "none" if one.fault is None else type(one.fault).__name__
        spent_s, longest_ms = time.perf_counter() - began_s, one.longest_s * 1e3
        print(f"| {target.name} | {one.inputs:,} | {spent_s:.0f} | {longest_ms:.0f} | {fault} |", flush=True)
        if stopped:
            break
    total, faults = sum(one.inputs for one in tried), sum(one.fault is not None for one in tried)
    print(f"| all | {total:,} | | | {faults} |")
    return int(any(one.fault for one in tried))


if __name__ == "__main__":
    sys.exit(main())
