"""`metronome capacity`: flags in, one call, the report out."""

from __future__ import annotations

from metronome_cli.cli import options

EPILOG = """Examples:

  metronome capacity  # the built-in model on its own speech

  metronome capacity --audio calls/ --json  # your recordings, the report on stdout

  metronome capacity --model ./Qwen3-4B --pool 8GiB  # any decoder, a token in and a token out a frame

  metronome capacity --policy unbounded --sessions 16 --session-length 2m --clock virtual  # a collapse

  metronome capacity --engine vllm --model ./Qwen3-4B --engine-arg tensor_parallel_size=2

  metronome capacity --target ws://127.0.0.1:8998 --sessions 8 --session-length 5m

  metronome capacity --compare-policies --offered 24 --session-length 2m --clock virtual

  metronome capacity --dry-run  # what it would do, how long it may take, how much memory

  metronome capacity --slo 'p99<60ms' --slo 'empty<1%' --output run/
"""


def capacity(
    profile: options.Profile = None,
    model: options.Model = None,
    audio: options.Audio = None,
    session_length: options.SessionLength = None,
    clock: options.Clock = None,
    batching: options.Batching = None,
    seed: options.Seed = None,
    record: options.Record = None,
    replay: options.Replay = None,
    device: options.Device = None,
    weights: options.Weights = None,
    engine: options.Engine = None,
    engine_arg: options.EngineArg = None,
    policy: options.Policy = None,
    sink_positions: options.SinkPositions = None,
    exhaustion: options.Exhaustion = None,
    pool: options.Pool = None,
    slo: options.Slo = None,
    sessions: options.Sessions = None,
    method: options.Method = None,
    soak: options.Soak = False,
    max_sessions: options.MaxSessions = None,
    budget: options.Budget = None,
    compare_policies: options.ComparePolicies = False,
    guard: options.Guard = None,
    offered: options.Offered = None,
    arrival_rate: options.ArrivalRate = None,
    trials: options.Trials = None,
    target: options.Target = None,
    protocol: options.Protocol = None,
    scrape: options.Scrape = None,
    scrape_metric: options.ScrapeMetric = None,
    served_model: options.ServedModel = None,
    ca_file: options.CaFile = None,
    connect_timeout: options.ConnectTimeout = None,
    seat_timeout: options.SeatTimeout = None,
    idle_timeout: options.IdleTimeout = None,
    reconnect: options.Reconnect = None,
    workers: options.Workers = None,
    ray: options.Ray = None,
    config: options.Config = None,
    json_: options.Json = False,
    output: options.Output = None,
    html: options.Html = None,
    junit: options.Junit = None,
    prometheus: options.Prometheus = None,
    dry_run: options.DryRun = False,
    ui: options.Ui = None,
) -> None:
    """How many live sessions hold every objective, for how long, and what binds."""
    from metronome_cli.cli.conduct import conduct, profile_of_model
    from metronome_cli.config.settings import resolve

    settings = resolve(
        {
            "profile": profile, "model": model, "audio": audio, "session_length": session_length, "clock": clock,
            "record": record, "replay": replay,
            "batching": batching, "seed": seed, "device": device, "weights": weights, "policy": policy,
            "engine": engine, "engine_arg": engine_arg,
            "sink_positions": sink_positions, "exhaustion": exhaustion, "pool": pool, "slo": slo,
            "sessions": sessions, "method": method, "soak": soak, "max_sessions": max_sessions,
            "budget": budget,
            "compare_policies": compare_policies, "guard": guard, "offered": offered,
            "arrival_rate": arrival_rate, "trials": trials, "config": config, "json": json_,
            "output": output, "html": html, "junit": junit, "ui": ui,
            "prometheus": prometheus, "dry_run": dry_run, "target": target, "protocol": protocol,
            "scrape": scrape, "workers": workers, "ray": ray, "scrape_metric": scrape_metric,
            "served_model": served_model, "ca_file": ca_file, "connect_timeout": connect_timeout,
            "seat_timeout": seat_timeout, "idle_timeout": idle_timeout, "reconnect": reconnect,
        },
        from_model=profile_of_model,
    )  # fmt: skip
    from metronome_cli.run.capacity import run_capacity
    from metronome_cli.run.plans import capacity_plan

    plan = capacity_plan(settings)
    if settings["dry_run"]:
        from metronome_cli.cli.console import write
        from metronome_cli.run.dry_run import outline

        ahead = outline(plan)
        write(ahead.as_json() if settings["json"] else ahead.as_text())
        return
    if settings["engine"] == "vllm":
        from metronome_cli.run.plans import vllm_plan
        from metronome_cli.run.vllm import run_vllm_capacity

        vllm = vllm_plan(settings)
        conduct(settings, lambda observer, stop: run_vllm_capacity(plan, vllm, observer, stop))
    if settings["target"] is not None:
        from metronome_cli.targets.protocols import need_libraries

        need_libraries()
        from metronome_cli.run.plans import remote_plan
        from metronome_cli.run.remote import run_remote_capacity

        remote = remote_plan(settings)
        conduct(settings, lambda observer, stop: run_remote_capacity(plan, remote, observer, stop))
    conduct(settings, lambda observer, stop: run_capacity(plan, observer, stop))
