"""A search on the simulated target, over and over, writing events to the directory given, until it is killed."""

import sys
from pathlib import Path

from metronome_cli.control.aimd import AimdGains
from metronome_cli.report.events import EventsFile
from metronome_cli.report.story import CONDITIONS
from metronome_cli.run.search import Search
from tests.report.builders import report
from tests.run.builders import always, lab_on


def main(directory):
    events = EventsFile(Path(directory))
    conditions = report().model_dump(mode="json", by_alias=True)
    events.event("run", {key: conditions[key] for key in CONDITIONS})
    while True:
        lab = lab_on(always(0.02), observer=events)
        Search(lab, AimdGains(), "ramp", soak=False, confirm_steps=500).run()


if __name__ == "__main__":
    main(sys.argv[1])
