"""`metronome predict`: flags in, one call, the report out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from metronome_cli.cli import options as shared
from metronome_cli.cli.options import LOAD, MEMORY, SERVER

TRACE, FLEET = "Trace", "Fleet"

EPILOG = """Examples:

  metronome predict --profile qwen3-omni-30b --policy unbounded --sessions 128 --session-length 5m

  metronome predict --model checkpoint/ --memory 96GiB --tokens-per-second 27 --sessions 128

  metronome predict --trace run/ --fit-share 30%

  metronome predict --scrape http://localhost:8000/metrics --every 1s --fail-within 10m

  metronome predict --fleet --arrivals 2.5/s --mean-call 4m --block 1% --sessions-per-gpu 100

  metronome predict --profile moshi --gpu h100,l40s,rtx-4090
"""


def predict(
    profile: shared.Profile = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A config.json, or a checkpoint directory with one.", metavar="PATH", rich_help_panel=LOAD
        ),
    ] = None,
    sessions: Annotated[
        int | None,
        shared.SettingOption("sessions", LOAD, "-n", min=1, metavar="N", help="Sessions at once."),
    ] = None,
    session_length: shared.SessionLength = None,
    speaking_share: shared.SpeakingShare = None,
    start_over: Annotated[
        str | None,
        typer.Option(help="Starts are spread over this long.", metavar="TIME", rich_help_panel=LOAD),
    ] = None,
    period: Annotated[
        str | None, typer.Option(help="With --model: a frame.", metavar="TIME", rich_help_panel=LOAD)
    ] = None,
    tokens_in: Annotated[
        str | None,
        typer.Option(help="With --model: positions a frame brings.", metavar="N", rich_help_panel=LOAD),
    ] = None,
    tokens_out: Annotated[
        str | None,
        typer.Option(
            help="With --model: decoded a frame, SPEAKING or SPEAKING/LISTENING.",
            metavar="N[/N]",
            rich_help_panel=LOAD,
        ),
    ] = None,
    tokens_per_second: Annotated[
        str | None,
        typer.Option(help="With --model: a steady load instead.", metavar="N", rich_help_panel=LOAD),
    ] = None,
    turn: Annotated[
        str | None,
        typer.Option(help="With --model: mean length of a turn.", metavar="TIME", rich_help_panel=LOAD),
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(help="Of the largest safe number; 95%.", metavar="SHARE", rich_help_panel=LOAD),
    ] = None,
    policy: shared.Policy = None,
    pool: shared.Pool = None,
    memory: shared.Memory = None,
    memory_share: Annotated[
        str | None,
        typer.Option(help="Share of it that may be used; 90%.", metavar="SHARE", rich_help_panel=MEMORY),
    ] = None,
    occupied: Annotated[
        str | None,
        typer.Option(help="Share of the pool taken from the start.", metavar="SHARE", rich_help_panel=MEMORY),
    ] = None,
    seen_t_sat: Annotated[
        str | None,
        typer.Option(
            help="A collapse seen elsewhere: what pool does it imply?", metavar="TIME", rich_help_panel=MEMORY
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="report.json, events.jsonl, a run's directory, CSV or JSON.",
            metavar="PATH",
            rich_help_panel=TRACE,
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Which run of several in it.", metavar="NAME", rich_help_panel=TRACE)
    ] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Name of the time column.", metavar="NAME", rich_help_panel=TRACE)
    ] = None,
    occupancy_column: Annotated[
        str | None, typer.Option(help="Name of the occupancy column.", metavar="NAME", rich_help_panel=TRACE)
    ] = None,
    fit_share: Annotated[
        str | None,
        typer.Option(help="Fit the first part only, such as 30%.", metavar="SHARE", rich_help_panel=TRACE),
    ] = None,
    fit_until: Annotated[
        str | None, typer.Option(help="Fit up to here, such as 45s.", metavar="TIME", rich_help_panel=TRACE)
    ] = None,
    scrape: Annotated[
        str | None, typer.Option(help="A server's Prometheus metrics.", metavar="URL", rich_help_panel=SERVER)
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Time between scrapes; 1s.", metavar="TIME", rich_help_panel=SERVER)
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="One forecast, then leave.", rich_help_panel=SERVER)
    ] = False,
    watch: Annotated[
        str | None, typer.Option(help="Leave after this long.", metavar="TIME", rich_help_panel=SERVER)
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Gauge of the pool's used share, 0..1.", metavar="NAME", rich_help_panel=SERVER),
    ] = None,
    fit_window: Annotated[
        str | None, typer.Option(help="Fit the last so long; 5m.", metavar="TIME", rich_help_panel=SERVER)
    ] = None,
    fail_within: Annotated[
        str | None,
        typer.Option(
            help="Exit code 3 when it is full within this long.", metavar="TIME", rich_help_panel=SERVER
        ),
    ] = None,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="How many GPUs for a load?", rich_help_panel=FLEET)
    ] = False,
    arrivals: Annotated[
        str | None, typer.Option(help="Such as 2.5/s.", metavar="RATE", rich_help_panel=FLEET)
    ] = None,
    mean_call: Annotated[
        str | None, typer.Option(help="Such as 4m.", metavar="TIME", rich_help_panel=FLEET)
    ] = None,
    peak_sessions: Annotated[
        int | None,
        typer.Option(min=1, help="Sessions at the peak, instead.", metavar="N", rich_help_panel=FLEET),
    ] = None,
    block: Annotated[
        str | None,
        typer.Option(help="Share that may be turned away; 1%.", metavar="SHARE", rich_help_panel=FLEET),
    ] = None,
    headroom: Annotated[
        str | None,
        typer.Option(help="Share of each GPU's seats kept free.", metavar="SHARE", rich_help_panel=FLEET),
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(min=1, help="GPUs that fail together.", metavar="N", rich_help_panel=FLEET)
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=1, help="Judge a fleet of this size.", metavar="N", rich_help_panel=FLEET),
    ] = None,
    sessions_per_gpu: Annotated[
        int | None, typer.Option(min=1, help="What one GPU holds.", metavar="N", rich_help_panel=FLEET)
    ] = None,
    capacity_report: Annotated[
        Path | None, typer.Option(help="A capacity run that says so.", metavar="PATH", rich_help_panel=FLEET)
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="Cards to estimate, such as h100,l40s,rtx-4090.", metavar="CARDS", rich_help_panel=FLEET
        ),
    ] = None,
    config: shared.Config = None,
    json_: shared.Json = False,
    output: shared.Output = None,
    html: shared.Html = None,
    ui: shared.Ui = None,
) -> None:
    """When memory runs out, how surely, and what would be safe."""
    from metronome_cli.cli.conduct import show, write_files
    from metronome_cli.config.settings import resolve
    from metronome_cli.run.observer import Observer, Observers
    from metronome_cli.run.predict_options import predict as answer
    from metronome_cli.run.predict_options import read_options
    from metronome_cli.run.stop import Stop

    settings = resolve(
        {
            "profile": profile, "sessions": sessions, "session_length": session_length,
            "speaking_share": speaking_share, "policy": policy, "pool": pool, "memory": memory,
            "config": config, "json": json_, "output": output, "html": html, "ui": ui,
        }
    )  # fmt: skip
    options = read_options(
        {
            "model": model, "trace": trace, "scrape": scrape, "fleet": fleet, "start_over": start_over,
            "occupied": occupied, "confidence": confidence, "seen_t_sat": seen_t_sat,
            "fail_within": fail_within, "period": period, "tokens_in": tokens_in, "tokens_out": tokens_out,
            "tokens_per_second": tokens_per_second, "turn": turn, "memory_share": memory_share, "run": run,
            "time_column": time_column, "occupancy_column": occupancy_column, "fit_share": fit_share,
            "fit_until": fit_until, "every": every, "once": once, "watch": watch, "metric": metric,
            "fit_window": fit_window, "arrivals": arrivals, "mean_call": mean_call,
            "peak_sessions": peak_sessions, "block": block, "headroom": headroom,
            "gpus_per_node": gpus_per_node, "gpus": gpus, "sessions_per_gpu": sessions_per_gpu,
            "capacity_report": capacity_report, "gpu": gpu,
        }
    )  # fmt: skip
    observer: Observer = Observers()
    if options.source == "scrape" and settings["ui"] != "none":
        from metronome_cli.ui.choose import can_redraw
        from metronome_cli.ui.countdown import Countdown

        observer = Countdown(sys.stderr, redraw=settings["ui"] != "plain" and can_redraw(sys.stderr))
    with Stop().on_signals() as stop:
        try:
            report = answer(settings, options, observer, stop)
        finally:
            observer.close()
        show(settings, report)  # first: a path that cannot be written must not cost the answer
        write_files(settings, report)
    raise typer.Exit(report.exit_code)
