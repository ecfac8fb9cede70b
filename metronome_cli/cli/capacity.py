"""`metronome capacity`: flags in, one call, the report out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from metronome_cli.cli import options

if TYPE_CHECKING:
    from metronome_cli.capacity.plan import CapacityPlan
    from metronome_cli.cli.output import PrintablePlan
    from metronome_cli.cli.run_command import Run
    from metronome_cli.config.settings import Settings

EPILOG = """Examples:

  metronome capacity  # the built-in model on its own speech

  metronome capacity --audio calls/ --json  # your recordings, the report on stdout

  metronome capacity --model ./Qwen3-4B --kv-pool 8GiB  # any decoder, a token in and a token out a frame

  metronome capacity --policy unbounded --sessions 16 --session-length 2m --clock virtual  # a collapse

  metronome capacity --backend vllm --model ./Qwen3-4B --vllm-arg tensor_parallel_size=2

  metronome capacity --url ws://127.0.0.1:8998 --sessions 8 --session-length 5m

  metronome capacity --compare-policies --offered-sessions 24 --session-length 2m --clock virtual

  metronome capacity --dry-run  # what it would do, how long it may take, how much memory

  metronome capacity --slo 'p99<60ms' --slo 'empty<1%' --output run/
"""


ESSENTIAL = (
    "audio", "profile", "model", "url", "sessions", "session_length", "slo", "policy", "kv_pool", "clock", "output",
    "html",
)  # fmt: skip


@options.report_files()
def capacity(
    profile: options.Profile = None,
    model: options.Model = None,
    audio: options.Audio = None,
    session_length: options.SessionLength = None,
    churn: options.Churn = None,
    clock: options.Clock = None,
    batching: options.Batching = None,
    seed: options.Seed = None,
    record: options.Record = None,
    replay: options.Replay = None,
    device: options.Device = None,
    weights: options.Weights = None,
    backend: options.Backend = None,
    vllm_arg: options.VllmArg = None,
    policy: options.Policy = None,
    sink_positions: options.SinkPositions = None,
    on_pool_full: options.OnPoolFull = None,
    kv_pool: options.KvPool = None,
    slo: options.Slo = None,
    playback_delay: options.PlaybackDelay = None,
    sessions: options.Sessions = None,
    search_method: options.SearchMethod = None,
    soak: options.Soak = False,
    max_sessions: options.MaxSessions = None,
    search_time: options.SearchTime = None,
    compare_policies: options.ComparePolicies = False,
    admission_control: options.AdmissionControl = None,
    offered_sessions: options.OfferedSessions = None,
    arrival_rate: options.ArrivalRate = None,
    repeat: options.Repeat = None,
    url: options.Url = None,
    protocol: options.Protocol = None,
    turn_end: options.TurnEnd = None,
    script: options.Script = None,
    misbehaving: options.Misbehaving = None,
    canary: options.Canary = False,
    cycles: options.Cycles = None,
    cycle_wait: options.CycleWait = None,
    metrics_url: options.MetricsUrl = None,
    occupancy_metric: options.OccupancyMetric = None,
    served_model_name: options.ServedModelName = None,
    ca_file: options.CaFile = None,
    connect_timeout: options.ConnectTimeout = None,
    ready_timeout: options.ReadyTimeout = None,
    idle_timeout: options.IdleTimeout = None,
    reconnect: options.Reconnect = None,
    workers: options.Workers = None,
    ray_address: options.RayAddress = None,
    config: options.Config = None,
    json_: options.Json = False,
    output: options.Output = None,
    prometheus_listen: options.PrometheusListen = None,
    dry_run: options.DryRun = False,
    ui: options.Ui = None,
    **files: Path | None,
) -> None:
    """Measure how many live sessions hold every objective, for how long, and what limits them."""
    given = locals()
    from metronome_cli.cli.output import show_plan
    from metronome_cli.cli.run_command import profile_of_model, resolve_command, run_command
    from metronome_cli.commands.plan_capacity import capacity_plan

    settings = resolve_command(given, from_model=profile_of_model)
    plan = capacity_plan(settings)
    if settings["dry_run"]:
        show_plan(_outline(settings, plan), as_json=settings["json"])
    else:
        run_command(settings, _runner(settings, plan))


def _outline(settings: Settings, plan: CapacityPlan) -> PrintablePlan:
    """What would run, on a server over the network or here."""
    if settings["url"] is None:
        from metronome_cli.capacity.dry_run import outline

        return outline(plan)
    from metronome_cli.protocols.registry import need_libraries

    need_libraries()
    from metronome_cli.capacity.dry_run_server import plan_dry_run
    from metronome_cli.commands.plan_capacity import websocket_setup

    return plan_dry_run(plan, websocket_setup(settings))


def _runner(settings: Settings, plan: CapacityPlan) -> Run:
    """What runs the plan: vLLM, a server over the network, or the engine in this process."""
    if settings["backend"] == "vllm":
        from metronome_cli.commands.capacity_on_vllm import run_on_vllm
        from metronome_cli.commands.plan_capacity import vllm_setup

        vllm = vllm_setup(settings)
        return lambda observer, stop: run_on_vllm(plan, vllm, observer, stop)
    if settings["url"] is not None:
        from metronome_cli.protocols.registry import need_libraries

        need_libraries()
        from metronome_cli.commands.capacity_on_server import run_on_server
        from metronome_cli.commands.plan_capacity import websocket_setup

        remote = websocket_setup(settings)
        return lambda observer, stop: run_on_server(plan, remote, observer, stop)
    from metronome_cli.capacity.capacity_run import run_capacity

    return lambda observer, stop: run_capacity(plan, observer, stop)
