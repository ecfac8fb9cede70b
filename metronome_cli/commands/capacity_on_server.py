"""`capacity --url`: a server over the network as the system under test.

A bounded cache cannot be told from a growing one from outside, and sessions cannot be made old, so a whole session
length confirms, in real time.
"""

from __future__ import annotations

from dataclasses import replace

from metronome_cli.backends.websocket.backend import (
    WebsocketBackend,
    WebsocketSetup,
    at_rate,
    connect_backend,
)
from metronome_cli.capacity.capacity_run import run_capacity
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.core.errors import StoppedError, UsageError
from metronome_cli.core.http import shown
from metronome_cli.core.stop import LoadInterrupted, StopRequest
from metronome_cli.results.events import Observer, ObserverGroup
from metronome_cli.results.run_report import Report


def run_on_server(
    plan: CapacityPlan,
    server: WebsocketSetup,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
) -> Report:
    """Measure a server. Raises UsageError for bad input, EngineError if the server cannot be reached at all."""
    if plan.compare or plan.guard or plan.trials:
        raise UsageError(
            "--url measures a server as it is",
            hint="leave --compare-policies, --admission-control and --repeat out",
        )
    observer = observer or ObserverGroup()
    server.host_starter()  # what it lacks is told before anything connects
    observer.phase("knock", f"at {shown(server.target)}")
    stop = stop or StopRequest()
    try:
        with stop.during_load():
            backend = connect_backend(server, plan.profile.frame.period_s, plan.length_s)
    except LoadInterrupted:
        raise StoppedError("stopped before the server was connected", stop.signum) from None
    profile = at_rate(plan.profile, backend.endpoint.traits.sample_rate)
    plan = replace(plan, profile=profile, clock="real", batching="continuous")
    return run_capacity(plan, observer, stop, lambda plan, observer: backend, WebsocketBackend.traits)
