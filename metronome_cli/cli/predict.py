"""`metronome predict`: flags in, one call, the report out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from metronome_cli.cli import options as shared
from metronome_cli.cli import predict_options as own
from metronome_cli.cli.command_table import Command, DefaultGroup, short_help

if TYPE_CHECKING:
    from metronome_cli.config.settings import Settings
    from metronome_cli.results.events import Observer

HELP = "Forecast when memory runs out: from a profile or checkpoint (the default), a trace, a server, or for a fleet."


class PredictGroup(DefaultGroup):
    """`metronome predict --profile ...` means `metronome predict profile --profile ...`."""

    default = "profile"


predict = typer.Typer(
    cls=PredictGroup,
    help=HELP,
    epilog="""`metronome predict --help-all` lists the options of the default, `profile`.

Examples:

  metronome predict --profile qwen3-omni-30b --policy unbounded --sessions 128 --session-length 5m

  metronome predict trace run/ --fit-share 30%

  metronome predict watch http://localhost:8000/metrics --fail-within 10m

  metronome predict fleet --arrival-rate 2.5/s --mean-session-length 4m --sessions-per-gpu 100
""",
)


@predict.callback()
def choose() -> None:
    """Forecast when memory runs out: from a profile or checkpoint (the default), a trace, a server, or for a fleet."""


@predict.command(
    cls=short_help(
        "profile", "model", "sessions", "session_length", "speaking_share", "tokens_per_second", "policy", "kv_pool",
        "device_memory", "confidence", "fail_within", "gpu", "output", "html",
    ),
    epilog="""Examples:

  metronome predict --profile qwen3-omni-30b --policy unbounded --sessions 128 --session-length 5m

  metronome predict --model checkpoint/ --device-memory 96GiB --tokens-per-second 27 --sessions 128

  metronome predict --profile moshi --gpu h100,l40s,rtx-4090
""",
)  # fmt: skip
@shared.report_files()
def profile(
    profile: shared.Profile = None,
    model: own.Model = None,
    sessions: own.Sessions = None,
    session_length: shared.SessionLength = None,
    speaking_share: shared.SpeakingShare = None,
    ramp_up: own.RampUp = None,
    period: own.Period = None,
    prefill_tokens: own.PrefillTokens = None,
    decode_tokens: own.DecodeTokens = None,
    tokens_per_second: own.TokensPerSecond = None,
    turn_length: own.TurnLength = None,
    policy: shared.Policy = None,
    kv_pool: shared.KvPool = None,
    device_memory: shared.DeviceMemory = None,
    memory_utilization: own.MemoryUtilization = None,
    initial_occupancy: own.InitialOccupancy = None,
    observed_fill_time: own.ObservedFillTime = None,
    gpu: own.Gpu = None,
    capacity_report: own.CapacityReport = None,
    confidence: own.Confidence = None,
    fail_within: own.FailWithin = None,
    fail_probability: own.FailProbability = None,
    config: shared.Config = None,
    json_: shared.Json = False,
    output: shared.Output = None,
    **files: Path | None,
) -> None:
    """When the sessions of a profile or a checkpoint fill the KV pool, and how many fit."""
    _answer("profile", locals())


@predict.command(
    cls=Command,
    epilog="""Examples:

  metronome predict trace run/ --fit-share 30%

  metronome predict trace occupancy.csv --time-column t --occupancy-column kv --fail-within 10m
""",
)
@shared.report_files()
def trace(
    trace: Annotated[Path, typer.Argument(help="report.json, events.jsonl, a run's directory, CSV or JSON.")],
    trial: own.Trial = None,
    time_column: own.TimeColumn = None,
    occupancy_column: own.OccupancyColumn = None,
    fit_share: own.FitShare = None,
    fit_until: own.FitUntil = None,
    session_length: shared.SessionLength = None,
    fail_within: own.FailWithin = None,
    fail_probability: own.FailProbability = None,
    config: shared.Config = None,
    json_: shared.Json = False,
    output: shared.Output = None,
    **files: Path | None,
) -> None:
    """When the KV pool of a recorded run is full, from its occupancy so far."""
    _answer("trace", locals())


@predict.command(
    cls=Command,
    epilog="""It ends early with exit code 3 when the pool is more likely than not to be full within --fail-within, or
when it is full and no token comes.

Examples:

  metronome predict watch http://localhost:8000/metrics --scrape-interval 1s --fail-within 10m

  metronome predict watch http://localhost:8000/metrics --once --json
""",
)
@shared.report_files()
def watch(
    metrics_url: Annotated[
        str,
        typer.Argument(help="Prometheus endpoint of the server: http://HOST:PORT/metrics.", metavar="URL"),
    ],
    scrape_interval: own.ScrapeInterval = None,
    once: own.Once = False,
    watch_time: own.WatchTime = None,
    occupancy_metric: own.OccupancyMetric = None,
    fit_window: own.FitWindow = None,
    session_length: shared.SessionLength = None,
    fail_within: own.FailWithin = None,
    fail_probability: own.FailProbability = None,
    config: shared.Config = None,
    json_: shared.Json = False,
    output: shared.Output = None,
    ui: shared.Ui = None,
    **files: Path | None,
) -> None:
    """When a running server's KV pool is full, from its metrics, with a countdown."""
    _answer("watch", locals())


@predict.command(
    cls=Command,
    epilog="""Examples:

  metronome predict fleet --arrival-rate 2.5/s --mean-session-length 4m --max-blocking 1% --sessions-per-gpu 100

  metronome predict fleet --peak-sessions 400 --capacity-report run/ --gpus-per-node 8
""",
)
@shared.report_files()
def fleet(
    arrival_rate: own.ArrivalRate = None,
    mean_session_length: own.MeanSessionLength = None,
    peak_sessions: own.PeakSessions = None,
    max_blocking: own.MaxBlocking = None,
    headroom: own.Headroom = None,
    gpus_per_node: own.GpusPerNode = None,
    gpus: own.Gpus = None,
    sessions_per_gpu: own.SessionsPerGpu = None,
    capacity_report: own.CapacityReport = None,
    gpu: own.Gpu = None,
    profile: shared.Profile = None,
    session_length: shared.SessionLength = None,
    memory_utilization: own.MemoryUtilization = None,
    confidence: own.Confidence = None,
    config: shared.Config = None,
    json_: shared.Json = False,
    output: shared.Output = None,
    **files: Path | None,
) -> None:
    """How many GPUs a load needs, from what one GPU holds."""
    _answer("fleet", locals())


def _answer(source: own.Source, given: dict[str, object]) -> NoReturn:
    from metronome_cli.cli.run_command import finish, resolve_command
    from metronome_cli.commands.predict.predict_flags import predict as answer
    from metronome_cli.commands.predict.predict_flags import read_options, takes

    flags = read_options(source, {key: given.pop(key) for key in takes(given)})
    settings = resolve_command(given)
    finish(
        settings,
        _countdown(settings, source),
        lambda observer, stop: answer(settings, flags, observer, stop),
    )


def _countdown(settings: Settings, source: own.Source) -> Observer:
    """The view of a server that is watched; other forecasts are immediate."""
    from metronome_cli.results.events import ObserverGroup

    if source != "watch" or settings["ui"] == "none":
        return ObserverGroup()
    from metronome_cli.ui.choose import make_watch_view

    return make_watch_view(settings["ui"], sys.stderr)
