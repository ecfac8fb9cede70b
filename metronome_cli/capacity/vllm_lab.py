"""The conditions of points on vLLM in this process: a fresh engine for each, in an event loop of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

from metronome_cli.backends.in_process.driver import Driver
from metronome_cli.backends.streaming.event_loop import EventLoopThread
from metronome_cli.backends.vllm.arguments import MOST_SEATS, Arguments, engine_arguments, make_room
from metronome_cli.backends.vllm.engine import StreamingEngine
from metronome_cli.backends.vllm.monitor import EngineMonitor, frame_blocks
from metronome_cli.backends.vllm.pool_gauge import PoolGauge
from metronome_cli.backends.vllm.streamed import StreamDriver, StreamPopulation
from metronome_cli.backends.vllm.warm_up import check_window, warm
from metronome_cli.capacity.lab import Lab
from metronome_cli.config.profile import Profile
from metronome_cli.forecast.trace_forecast import forecast_of
from metronome_cli.load.trace import TraceTrial
from metronome_cli.results.forecast_result import Forecast

WARM_S = 600.0
_NAP_S = 0.2
STOP_S = 60.0
EngineMaker = Callable[[Arguments, PoolGauge], StreamingEngine]


@dataclass(frozen=True, slots=True)
class VllmSetup:
    """Which model, and what is passed on to vLLM's engine. `block_multiple`: of a block's positions, on this device."""

    model: str
    given: Arguments = field(default_factory=dict)
    block_multiple: int = 1

    @property
    def weights(self) -> str:
        """Where they are from."""
        return "random" if self.given.get("load_format") == "dummy" else self.model

    @property
    def seats(self) -> int:
        """Most sessions of one run."""
        return int(self.given.get("max_num_seqs") or MOST_SEATS) * int(
            self.given.get("data_parallel_size") or 1
        )

    def arguments(self, profile: Profile, seats: int, seed: int) -> Arguments:
        """All of one engine. Raises UsageError."""
        return engine_arguments(profile, self.model, seats, seed, self.given)


@dataclass(frozen=True, slots=True)
class _Running:
    engine: StreamingEngine
    loop: EventLoopThread

    def stop(self) -> None:
        try:
            self.loop.wait(self.engine.stop(), STOP_S)
        finally:
            self.loop.close()


@dataclass(slots=True)
class VllmLab(Lab):
    """A lab whose drivers have an engine of their own each. Only the last one runs."""

    vllm: VllmSetup = field(default_factory=lambda: VllmSetup(""))
    make_engine: EngineMaker | None = None
    told: Callable[[dict[str, Any]], None] = lambda description: None
    running: list[_Running] = field(default_factory=list)
    forecast: Forecast | None = None  # of the last point whose pool filled, else of the last one
    point: tuple[StreamDriver, int] | None = None  # that runs, and its sessions

    def driver(self, seats: int, head: TraceTrial | None = None) -> Driver:
        """A fresh engine, warm, with nobody in it; the one before it is stopped. Raises EngineError, UsageError."""
        self.hang_up()
        engine, loop = self._start(seats)
        population = StreamPopulation(
            EngineMonitor(engine, self.profile),
            self.profile,
            self.streams,
            self.turns_of,
            loop,
            self.seed,
            note=self.note(head),
        )
        driver = StreamDriver(population, self.ledger(), self.stop, self.pulse)
        self.point = None if head is None else (driver, head.sessions)
        return cast(Driver, driver)  # but for `step`

    def _start(self, seats: int) -> tuple[StreamingEngine, EventLoopThread]:
        assert self.make_engine is not None
        arguments = self.vllm.arguments(self.profile, seats, self.seed)
        make_room(arguments, self.profile)
        engine = self.make_engine(arguments, PoolGauge(frame_blocks(self.profile)))
        loop = EventLoopThread("vllm")
        self.running.append(_Running(engine, loop))
        self._unless_stopped(loop, engine, engine.start())
        seen = loop.wait(warm(engine, self.profile), WARM_S)
        window = check_window(self.profile, seen)
        self.told(engine.describe() | ({"window": window} if window else {}))
        return engine, loop

    def _unless_stopped(
        self, loop: EventLoopThread, engine: StreamingEngine, start: Coroutine[Any, Any, None]
    ) -> None:
        """Wait for the engine, or give it up when the command is stopped. Raises EngineError."""
        started = asyncio.run_coroutine_threadsafe(start, loop.loop)
        while not concurrent.futures.wait([started], _NAP_S).done:
            if self.stop():
                engine.give_up()
        started.result()

    def hang_up(self) -> None:
        """Stop the engine that runs, and keep what its occupancy foretold."""
        if self.point is not None:
            self._look_back(*self.point)
            self.point = None
        while self.running:
            self.running.pop().stop()

    def _look_back(self, driver: StreamDriver, sessions: int) -> None:
        """What a point's early occupancy said of the rest; one that filled says more than one that did not."""
        full_s = driver.pool_full_s
        if full_s is None and self.forecast is not None and self.forecast.observed_fill_time_s is not None:
            return
        trace = driver.population.target.trace(driver.clock, full_s)
        found = forecast_of(trace, full_s, sessions, self.session_length_s, "vLLM")
        if found is not None:
            self.forecast = found.model_copy(update={"source": "trace"})
