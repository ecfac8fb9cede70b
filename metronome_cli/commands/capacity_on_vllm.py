"""`capacity --backend vllm`: vLLM in this process as the system under test."""

from __future__ import annotations

from dataclasses import replace

from metronome_cli.backends.vllm import need_vllm
from metronome_cli.backends.vllm.arguments import Arguments, check_known, fitted
from metronome_cli.backends.vllm.backend import EngineMaker, VllmBackend, VllmSetup
from metronome_cli.backends.vllm.engine import (
    StreamingEngine,
    VllmEngine,
    block_multiple,
    known_arguments,
    prepare,
)
from metronome_cli.backends.vllm.log import EngineLog
from metronome_cli.backends.vllm.pool_gauge import PoolGauge
from metronome_cli.capacity.capacity_run import run_capacity
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.core.errors import UsageError
from metronome_cli.core.stop import StopRequest
from metronome_cli.results.events import Observer, ObserverGroup
from metronome_cli.results.run_report import Report


def run_on_vllm(
    plan: CapacityPlan, vllm: VllmSetup, observer: Observer | None = None, stop: StopRequest | None = None
) -> Report:
    """Measure vLLM in this process. Raises UsageError if it is not installed or does not support the plan."""
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

        report = run_on_streaming_engine(plan, vllm, make, observer, stop)
        failed = report.status == "failed"
    finally:
        if failed:
            observer.notice(f"vLLM's log is {log.file}")
        log.close(keep=failed)
    return report


def run_on_streaming_engine(
    plan: CapacityPlan,
    vllm: VllmSetup,
    make_engine: EngineMaker,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
) -> Report:
    """Measure the engine that `make_engine` creates. Raises UsageError if it does not support the plan."""
    profile = fitted(plan.profile, vllm.given, vllm.block_multiple)
    if profile.tokens.fused:
        raise UsageError(
            f"profile {profile.name} sums its streams into one position, which vLLM does not support",
            hint="use --backend in-process",
        )
    slots = min(plan.max_sessions, vllm.slots)
    plan = replace(plan, profile=profile, clock="real", batching="continuous", max_sessions=slots)
    backend = VllmBackend(vllm, make_engine, profile, plan.seed)
    return run_capacity(plan, observer, stop, lambda plan, observer: backend, VllmBackend.traits)
