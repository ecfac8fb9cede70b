"""`metronome predict`: flags in, one call, the report out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from metronome_cli.cli import options as shared
from metronome_cli.cli import predict_options as own

if TYPE_CHECKING:
    from metronome_cli.commands.predict.predict_flags import PredictFlags
    from metronome_cli.config.settings import Settings
    from metronome_cli.results.events import Observer

EPILOG = """Examples:

  metronome predict --profile qwen3-omni-30b --policy unbounded --sessions 128 --session-length 5m

  metronome predict --model checkpoint/ --device-memory 96GiB --tokens-per-second 27 --sessions 128

  metronome predict --trace run/ --fit-share 30%

  metronome predict --metrics-url http://localhost:8000/metrics --scrape-interval 1s --fail-within 10m

  metronome predict --fleet --arrival-rate 2.5/s --mean-session-length 4m --max-blocking 1% --sessions-per-gpu 100

  metronome predict --profile moshi --gpu h100,l40s,rtx-4090
"""


def predict(
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
    confidence: own.Confidence = None,
    policy: shared.Policy = None,
    kv_pool: shared.KvPool = None,
    device_memory: shared.DeviceMemory = None,
    memory_utilization: own.MemoryUtilization = None,
    initial_occupancy: own.InitialOccupancy = None,
    observed_fill_time: own.ObservedFillTime = None,
    trace: own.Trace = None,
    trial: own.Trial = None,
    time_column: own.TimeColumn = None,
    occupancy_column: own.OccupancyColumn = None,
    fit_share: own.FitShare = None,
    fit_until: own.FitUntil = None,
    metrics_url: own.MetricsUrl = None,
    scrape_interval: own.ScrapeInterval = None,
    once: own.Once = False,
    watch_time: own.WatchTime = None,
    occupancy_metric: own.OccupancyMetric = None,
    fit_window: own.FitWindow = None,
    fail_within: own.FailWithin = None,
    fleet: own.Fleet = False,
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
    config: shared.Config = None,
    json_: shared.Json = False,
    output: shared.Output = None,
    html: shared.Html = None,
    ui: shared.Ui = None,
) -> None:
    """When memory runs out, how surely, and what would be safe."""
    _answer(locals())


def _answer(given: dict[str, object]) -> None:
    from metronome_cli.cli.run_command import finish, resolve_command
    from metronome_cli.commands.predict.predict_flags import READERS, read_options
    from metronome_cli.commands.predict.predict_flags import predict as answer

    options = read_options({key: given.pop(key) for key in READERS})
    settings = resolve_command(given)
    finish(
        settings,
        _countdown(settings, options),
        lambda observer, stop: answer(settings, options, observer, stop),
    )


def _countdown(settings: Settings, options: PredictFlags) -> Observer:
    """What is seen of a server that is watched; other questions are answered at once."""
    from metronome_cli.results.events import ObserverGroup

    if options.source != "metrics_url" or settings["ui"] == "none":
        return ObserverGroup()
    from metronome_cli.ui.choose import make_watch_view

    return make_watch_view(settings["ui"], sys.stderr)
