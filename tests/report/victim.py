"""A search on the simulated target, over and over, writing events to the directory given, until it is killed."""

import sys
from pathlib import Path

from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.search_setup import search_for
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
        search_for(context, AimdGains(), "ramp", soak=False, into=[]).run()


if __name__ == "__main__":
    main(sys.argv[1])
