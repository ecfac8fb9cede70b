"""Workers as Ray actors, on as many machines as the cluster has.

Each machine has its own monotonic clock. Before any audio, the offset of a worker's clock is measured several times;
the reading with the shortest round trip counts, taken at half of it. Known error: half the shortest round trip. It may
move a frame to another batch but does not change its latency, since a frame is sent and answered on one machine.

Headers and keys are sent to the actors with the host setup, over the cluster's own connections.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from metronome_cli.backends.websocket.socket_host import HostSetup
from metronome_cli.backends.websocket.worker import Worker, WorkerCommand, WorkerReply
from metronome_cli.backends.websocket.worker_client import WorkerClient, WorkerLostError
from metronome_cli.core.errors import EngineError, UsageError

LOCAL = "local"
START_S = 60.0  # for the cluster to start an actor
CLOCK_PROBES = 7


class RayWorker:
    """Ray actor that runs a worker."""

    def __init__(self, setup: HostSetup) -> None:
        self._setup = setup
        self._worker: Worker | None = None

    def clock(self) -> float:
        """Return the monotonic time of this machine."""
        return time.perf_counter()

    def start(self, zero_s: float) -> None:
        """Start the worker. `zero_s`: time 0 of the trial on this machine's clock."""
        self._worker = Worker(replace(self._setup, zero_s=zero_s))

    def answer(self, commands: Sequence[WorkerCommand]) -> WorkerReply:
        """See `Worker.answer`."""
        assert self._worker is not None
        return self._worker.answer(commands)


class RayChannel:
    """Implements `WorkerChannel` on one actor."""

    def __init__(self, actor: Any, name: str) -> None:
        self.name = name
        self.actor = actor
        self._asked: Any = None

    def ask(self, commands: Sequence[WorkerCommand]) -> None:
        self._asked = self.actor.answer.remote(list(commands))

    def answer(self) -> WorkerReply | None:
        import ray

        ready, _ = ray.wait([self._asked], timeout=0)
        if not ready:
            return None
        try:
            answer: WorkerReply = ray.get(self._asked)
        except ray.exceptions.RayError as error:
            raise WorkerLostError(f"was lost: {str(error).strip().splitlines()[0]}") from None
        return answer

    def end(self, timeout_s: float) -> None:
        import ray

        ray.kill(self.actor)


def need_ray() -> None:
    """Raise UsageError if Ray is not installed."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise UsageError(
            "--ray-address needs the package 'ray'",
            hint="pip install 'metronome-cli[net,ray]' on every machine",
        ) from None


def connect(address: str) -> None:
    """Join a cluster; `local` starts one on this machine. Raises UsageError, EngineError."""
    need_ray()
    import ray

    if ray.is_initialized():
        return
    try:
        ray.init(
            address=None if address == LOCAL else address, log_to_driver=False, logging_level="error",
            include_dashboard=False if address == LOCAL else None, configure_logging=False,
        )  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EngineError(f"no Ray cluster at {address}: {error}") from None


def start_ray_workers(setup: HostSetup, count: int, address: str) -> list[WorkerClient]:
    """Start `count` actors, spread over the cluster. Raises EngineError if it lacks free CPUs."""
    connect(address)
    import ray

    actor = ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(RayWorker)
    carried = ray.put(setup)
    channels = [RayChannel(actor.remote(carried), f"Ray worker {n + 1} of {count}") for n in range(count)]
    try:
        for channel in channels:
            offset_s = clock_offset_s(channel.actor)
            ray.get(channel.actor.start.remote(setup.zero_s + offset_s))
    except ray.exceptions.RayError as error:
        for channel in channels:
            channel.end(0.0)
        raise EngineError(f"Ray could not start {count} workers: {str(error).splitlines()[0]}") from None
    return [WorkerClient(channel) for channel in channels]


def clock_offset_s(actor: Any) -> float:
    """Return the actor's clock minus this one's, in s."""
    import ray

    best: tuple[float, float] | None = None
    for timeout_s in [START_S] * 2 + [10.0] * (CLOCK_PROBES - 2):
        asked_s = time.perf_counter()
        theirs_s: float = ray.get(actor.clock.remote(), timeout=timeout_s)
        back_s = time.perf_counter()
        found = (back_s - asked_s, theirs_s - (asked_s + back_s) / 2)
        best = found if best is None else min(best, found)
    assert best is not None
    return best[1]
