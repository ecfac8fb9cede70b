"""One point on the real clock, on the simulated target; says "measuring" when it is, and the point when it is done.

    python -m tests.faults.suspended [between | within]

`between`: idle between steps, as with a light load. `within`: nearly all the time inside a step.
"""

import sys
import time

from metronome_cli.capacity.point import PointPlan, PointRun
from metronome_cli.measure.stall import StallDetector
from tests.capacity.builders import Recorder, always, lab_on


class Announcer(Recorder):
    """Tells when the first window was measured."""

    def event(self, kind, data):
        if kind == "window" and not self.events:
            print("measuring", flush=True)
        super().event(kind, data)


def main(where):
    with StallDetector() as pulse:
        lab = lab_on(always(0.0), observer=Announcer(), clock="real", length_s=8.0, pulse=pulse)
        if where == "within":
            inner = lab.make_target
            lab.make_target = lambda profile, seats: Slow(inner(profile, seats))
        plan = PointPlan(1, "single", ages="start", length_s=6.0, settle_early=False)
        print(PointRun(lab, plan).run(into=[]).model_dump_json())


class Slow:
    """Takes most of the period over each step."""

    def __init__(self, target):
        self._target = target

    def step(self, frames):
        time.sleep(0.07)
        return self._target.step(frames)

    def __getattr__(self, name):
        return getattr(self._target, name)


if __name__ == "__main__":
    main(sys.argv[1])
