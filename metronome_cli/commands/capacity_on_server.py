"""`capacity --url`: a server over the network as the system under test.

From outside, a bounded cache cannot be distinguished from a growing one, and all sessions are new, so a confirmation
lasts the session length in real time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from metronome_cli.backends.interface import Sound
from metronome_cli.backends.websocket.backend import (
    TRAITS,
    WebsocketSetup,
    at_rate,
    connect_backend,
)
from metronome_cli.capacity.capacity_run import run_capacity
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.core.errors import StoppedError, UsageError
from metronome_cli.core.http import shown
from metronome_cli.core.stop import LoadInterrupted, StopRequest
from metronome_cli.measure.objective import Objective
from metronome_cli.results.events import Observer, ObserverGroup
from metronome_cli.results.run_report import Report

OF_TURNS = ("unanswered", "talked_over", "reply", "yield", "unyielding", "startled", "reply.added")
OF_ANSWERS = ("gappy", "broken", "rtf")


def check_heard(objectives: Sequence[Objective], sound: Sound, protocol: str, *, scripted: bool) -> None:
    """Raise UsageError for an objective that this protocol, or sessions without a script, cannot measure."""
    for objective in (one for one in objectives if one.of_listener):
        name = objective.time[0] if objective.time is not None else objective.metric
        if sound == "none":
            raise UsageError(
                f"--slo {objective}: {protocol} sends no sound",
                hint="use p99, misses or empty",
            )
        if name in OF_TURNS and not scripted:
            raise UsageError(f"--slo {objective}: users have no turns", hint="add --script turns")
        if name in OF_ANSWERS and sound == "steady":
            raise UsageError(
                f"--slo {objective}: {protocol} sends sound without end, and no answers",
                hint="use underrun or gap and, with --script, reply or unanswered",
            )


def run_on_server(
    plan: CapacityPlan,
    server: WebsocketSetup,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
) -> Report:
    """Measure a server. Raises UsageError for bad input, EngineError if the server cannot be reached at all."""
    if plan.compare or plan.guard or plan.trials:
        raise UsageError(
            "--url measures the server with its own policy and admission",
            hint="remove --compare-policies, --admission-control and --repeat",
        )
    observer = observer or ObserverGroup()
    server.host_starter()  # a missing library is reported before anything connects
    observer.phase("connect", f"at {shown(server.target)}")
    stop = stop or StopRequest()
    try:
        with stop.during_load():
            backend = connect_backend(server, plan.profile.frame.period_s, plan.length_s)
    except LoadInterrupted:
        raise StoppedError("stopped before the server was connected", stop.signum) from None
    profile = at_rate(plan.profile, backend.endpoint.traits.sample_rate)
    sound = backend.traits.sound
    check_heard(plan.objectives, sound, backend.endpoint.traits.name, scripted=plan.script is not None)
    plan = replace(plan, profile=profile, clock="real", batching="continuous", hears_server=sound != "none")
    return run_capacity(plan, observer, stop, lambda plan, observer: backend, TRAITS)
