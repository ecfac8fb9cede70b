"""One point on the real clock, on the simulated target; says "measuring" when it is, and the point when it is done.

    python -m tests.faults.suspended [between | within]

`between`: idle between steps, as with a light load. `within`: nearly all the time inside a step.
"""

import sys
import time

from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.measure.stall import StallDetector
from tests.capacity.builders import ObserverLog, always, context_on


class Announcer(ObserverLog):
    """Tells when the first window was measured."""

    def event(self, kind, data):
        if kind == "window" and not self.events:
            print("measuring", flush=True)
        super().event(kind, data)


def main(where):
    with StallDetector() as stalls:
        context = context_on(
            always(0.0),
            observer=Announcer(),
            clock="real",
            length_s=8.0,
            stalls=stalls,
            engine=Slow if where == "within" else lambda made: made,
        )
        plan = TrialPlan(1, "single", ages="start", length_s=6.0, until="end")
        print(Trial(context, plan).run(into=[]).result.model_dump_json())


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
