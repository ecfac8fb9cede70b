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

  metronome predict --model checkpoint/ --memory 96GiB --tokens-per-second 27 --sessions 128

  metronome predict --trace run/ --fit-share 30%

  metronome predict --scrape http://localhost:8000/metrics --every 1s --fail-within 10m

  metronome predict --fleet --arrivals 2.5/s --mean-call 4m --block 1% --sessions-per-gpu 100

  metronome predict --profile moshi --gpu h100,l40s,rtx-4090
"""


def predict(
    profile: shared.Profile = None,
    model: own.Model = None,
    sessions: own.Sessions = None,
    session_length: shared.SessionLength = None,
    speaking_share: shared.SpeakingShare = None,
    start_over: own.StartOver = None,
    period: own.Period = None,
    tokens_in: own.TokensIn = None,
    tokens_out: own.TokensOut = None,
    tokens_per_second: own.TokensPerSecond = None,
    turn: own.Turn = None,
    confidence: own.Confidence = None,
    policy: shared.Policy = None,
    pool: shared.Pool = None,
    memory: shared.Memory = None,
    memory_share: own.MemoryShare = None,
    occupied: own.Occupied = None,
    seen_t_sat: own.SeenTSat = None,
    trace: own.Trace = None,
    run: own.Run = None,
    time_column: own.TimeColumn = None,
    occupancy_column: own.OccupancyColumn = None,
    fit_share: own.FitShare = None,
    fit_until: own.FitUntil = None,
    scrape: own.Scrape = None,
    every: own.Every = None,
    once: own.Once = False,
    watch: own.Watch = None,
    metric: own.Metric = None,
    fit_window: own.FitWindow = None,
    fail_within: own.FailWithin = None,
    fleet: own.Fleet = False,
    arrivals: own.Arrivals = None,
    mean_call: own.MeanCall = None,
    peak_sessions: own.PeakSessions = None,
    block: own.Block = None,
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

    if options.source != "scrape" or settings["ui"] == "none":
        return ObserverGroup()
    from metronome_cli.ui.choose import can_redraw
    from metronome_cli.ui.countdown import Countdown

    return Countdown(sys.stderr, redraw=settings["ui"] != "plain" and can_redraw(sys.stderr))
