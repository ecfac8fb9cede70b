"""`metronome capacity`: flags in, one call, the report out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LOAD, CACHE, SEARCH, SERVER, OUTPUT = "Load", "Cache", "Search", "Server", "Output"

EPILOG = """Examples:

  metronome capacity                                        the built-in model on its own speech

  metronome capacity --audio calls/ --json                  your recordings, the report on stdout

  metronome capacity --model ./Qwen3-4B --pool 8GiB         any decoder, a token in and a token out a frame

  metronome capacity --policy unbounded --sessions 16 --session-length 2m --clock virtual

  metronome capacity --target ws://127.0.0.1:8998 --sessions 8 --session-length 5m

  metronome capacity --slo 'p99<60ms' --slo 'empty<1%' --output run/
"""


def capacity(
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", help="Profile by name, or a YAML file.", rich_help_panel=LOAD),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Any decoder in a profile's place: a directory, a .gguf file, a cached name.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option(help="Recording, or directory of recordings; repeatable.", rich_help_panel=LOAD),
    ] = None,
    session_length: Annotated[
        str | None, typer.Option(help="How long each session must hold, such as 10m.", rich_help_panel=LOAD)
    ] = None,
    clock: Annotated[
        str | None, typer.Option(help="real waits; virtual jumps over idle time.", rich_help_panel=LOAD)
    ] = None,
    batching: Annotated[
        str | None,
        typer.Option(help="continuous: step when a frame is due; tick: once a period.", rich_help_panel=LOAD),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of load and weights.", rich_help_panel=LOAD)] = None,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=LOAD)
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="random, or a checkpoint directory.", rich_help_panel=LOAD)
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="unbounded, 'window(W, S)', 'ring(W)' or 'recycle(W)', in tokens.", rich_help_panel=CACHE
        ),
    ] = None,
    sink_positions: Annotated[
        str | None,
        typer.Option(help="rolling or absolute.", rich_help_panel=CACHE),
    ] = None,
    exhaustion: Annotated[
        str | None,
        typer.Option(help="When no block is free: stall, preempt or refuse.", rich_help_panel=CACHE),
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="KV pool budget, such as 2GiB.", rich_help_panel=CACHE)
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(help="Objective such as 'p99<80ms' or 'empty<1%'; repeatable.", rich_help_panel=SEARCH),
    ] = None,
    sessions: Annotated[
        int | None,
        typer.Option(min=1, help="Judge this many sessions and nothing else.", rich_help_panel=SEARCH),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="ramp (AIMD first) or bisect.", rich_help_panel=SEARCH)
    ] = None,
    soak: Annotated[
        bool, typer.Option("--soak", help="Live through the whole session length.", rich_help_panel=SEARCH)
    ] = False,
    max_sessions: Annotated[
        int | None, typer.Option(min=1, help="Never try more sessions than this.", rich_help_panel=SEARCH)
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="How long to go on narrowing the answer; a minute or four confirmations unless given.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    compare_policies: Annotated[
        bool,
        typer.Option(
            "--compare-policies",
            help="Same controller on windowed, unbounded and guarded caches.",
            rich_help_panel=SEARCH,
        ),
    ] = False,
    guard: Annotated[
        str | None,
        typer.Option(help="memory: admit by forecast occupancy; that arm only.", rich_help_panel=SEARCH),
    ] = None,
    offered: Annotated[
        int | None, typer.Option(min=1, help="Callers offered to each arm.", rich_help_panel=SEARCH)
    ] = None,
    arrival_rate: Annotated[
        str | None, typer.Option(help="How fast they come, such as 8/s.", rich_help_panel=SEARCH)
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Run --sessions this many times: how often does it collapse?", rich_help_panel=SEARCH
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings.", rich_help_panel=OUTPUT)
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="The report, and nothing else, on stdout.", rich_help_panel=OUTPUT)
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Directory for report.json, report.html and events.jsonl.", rich_help_panel=OUTPUT),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a self-contained HTML report.", rich_help_panel=OUTPUT)
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Write JUnit XML, one case an objective.", rich_help_panel=OUTPUT)
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Drive a running server instead: ws://HOST:PORT.", rich_help_panel=SERVER),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="auto, moshi, moshi-server, realtime, unmute or vllm-realtime.", rich_help_panel=SERVER
        ),
    ] = None,
    scrape: Annotated[
        str | None,
        typer.Option(help="The server's metrics: http://HOST:PORT/metrics.", rich_help_panel=SERVER),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            help="Serve the run's series while it runs: :9464 or HOST:PORT.", rich_help_panel=OUTPUT
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="The plan, its duration and memory; nothing runs.", rich_help_panel=OUTPUT
        ),
    ] = False,
    ui: Annotated[str | None, typer.Option(help="auto, live, plain or none.", rich_help_panel=OUTPUT)] = None,
) -> None:
    """How many live sessions hold every objective, for how long, and what binds."""
    from metronome_cli.cli.conduct import conduct
    from metronome_cli.config.settings import resolve
    from metronome_cli.run.plans import profile_of_model

    settings = resolve(
        {
            "profile": profile, "model": model, "audio": audio, "session_length": session_length, "clock": clock,
            "batching": batching, "seed": seed, "device": device, "weights": weights, "policy": policy,
            "sink_positions": sink_positions, "exhaustion": exhaustion, "pool": pool, "slo": slo,
            "sessions": sessions, "method": method, "soak": soak, "max_sessions": max_sessions,
            "budget": budget,
            "compare_policies": compare_policies, "guard": guard, "offered": offered,
            "arrival_rate": arrival_rate, "trials": trials, "config": config, "json": json_,
            "output": output, "html": html, "junit": junit, "ui": ui,
            "prometheus": prometheus, "dry_run": dry_run, "target": target, "protocol": protocol,
            "scrape": scrape,
        },
        from_model=profile_of_model,
    )  # fmt: skip
    from metronome_cli.run.capacity import run_capacity
    from metronome_cli.run.plans import capacity_plan

    plan = capacity_plan(settings)
    if settings["dry_run"]:
        from metronome_cli.run.dry_run import outline

        ahead = outline(plan)
        typer.echo(ahead.as_json() if settings["json"] else ahead.as_text())
        return
    if settings["target"] is not None:
        from metronome_cli.run.plans import remote_plan
        from metronome_cli.run.remote import run_remote_capacity

        remote = remote_plan(settings)
        conduct(settings, lambda observer, stop: run_remote_capacity(plan, remote, observer, stop))
    conduct(settings, lambda observer, stop: run_capacity(plan, observer, stop))
