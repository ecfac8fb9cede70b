"""A search on the simulated target, over and over, writing events to the directory given, until it is killed."""

import sys
from pathlib import Path

from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.bisect_search import Search
from metronome_cli.report.event_log import EventsFile
from metronome_cli.report.event_replay import CONDITIONS
from tests.capacity.builders import always, context_on
from tests.report.builders import report


def main(directory):
    events = EventsFile(Path(directory))
    conditions = report().model_dump(mode="json", by_alias=True)
    events.event("run_started", {key: conditions[key] for key in CONDITIONS})
    while True:
        context = context_on(always(0.02), observer=events)
        Search(context, AimdGains(), "ramp", soak=False, confirm_steps=500).run()


if __name__ == "__main__":
    main(sys.argv[1])
