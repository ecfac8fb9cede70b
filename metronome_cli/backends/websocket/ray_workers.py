"""Workers as Ray actors, on as many machines as the cluster has.

Each machine has a monotonic clock of its own. A worker's is set against the run's before any audio: of several
questions for its time the quickest counts, at half its way there and back. Known error of that: half the quickest way;
it moves a frame between steps, not its latency, since a frame is sent and answered on one machine.

Headers and keys travel to the actors with the rest of the order, through the cluster's own channels.
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
PLACES_S = 60.0  # for the cluster to have room for an actor
QUESTIONS = 7


class RayWorker:
    """The actor."""

    def __init__(self, order: HostSetup) -> None:
        self._order = order
        self._worker: Worker | None = None

    def clock(self) -> float:
        """This machine's monotonic time."""
        return time.perf_counter()

    def start(self, zero_s: float) -> None:
        """Time 0 of the run, on that clock."""
        self._worker = Worker(replace(self._order, zero_s=zero_s))

    def answer(self, commands: Sequence[WorkerCommand]) -> WorkerReply:
        """As `Worker.answer`."""
        assert self._worker is not None
        return self._worker.answer(commands)


class RayChannel:
    """The way to one actor."""

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

    def end(self, patience_s: float) -> None:
        import ray

        ray.kill(self.actor)


def need_ray() -> None:
    """Raises UsageError where Ray is not installed."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise UsageError(
            "--ray-address needs the package 'ray'",
            hint="pip install 'metronome-cli[net,ray]' on every machine",
        ) from None


def connect(address: str) -> None:
    """Join that cluster; `local` starts one on this machine. Raises UsageError, EngineError."""
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


def start_ray_workers(order: HostSetup, count: int, address: str) -> list[WorkerClient]:
    """That many actors, spread over the cluster. Raises EngineError when it has no room for them."""
    connect(address)
    import ray

    actor = ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(RayWorker)
    carried = ray.put(order)
    posts = [RayChannel(actor.remote(carried), f"Ray worker {n + 1} of {count}") for n in range(count)]
    try:
        for post in posts:
            offset_s = clock_offset_s(post.actor)
            ray.get(post.actor.start.remote(order.zero_s + offset_s))
    except ray.exceptions.RayError as error:
        for post in posts:
            post.end(0.0)
        raise EngineError(f"Ray could not start {count} workers: {str(error).splitlines()[0]}") from None
    return [WorkerClient(post) for post in posts]


def clock_offset_s(actor: Any) -> float:
    """The actor's clock minus this one's, seconds."""
    import ray

    best: tuple[float, float] | None = None
    for patience_s in [PLACES_S] * 2 + [10.0] * (QUESTIONS - 2):
        asked_s = time.perf_counter()
        theirs_s: float = ray.get(actor.clock.remote(), timeout=patience_s)
        back_s = time.perf_counter()
        found = (back_s - asked_s, theirs_s - (asked_s + back_s) / 2)
        best = found if best is None else min(best, found)
    assert best is not None
    return best[1]
