"""The flags that only `metronome predict` has. A default that is shown here is the one of
commands/predict/predict_flags.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from metronome_cli.cli.options import LOAD, MEMORY, SERVER, SettingOption, command_option

TRACE, FLEET = "Trace", "Fleet"

Model = Annotated[
    Path | None, command_option(LOAD, "PATH", "A config.json, or a checkpoint directory with one.")
]
Sessions = Annotated[
    int | None, SettingOption("sessions", LOAD, "-n", min=1, metavar="N", help="Sessions at once.")
]
RampUp = Annotated[str | None, command_option(LOAD, "TIME", "Starts are spread over this long.")]
Period = Annotated[str | None, command_option(LOAD, "TIME", "With --model: a frame.")]
PrefillTokens = Annotated[str | None, command_option(LOAD, "N", "With --model: positions a frame brings.")]
DecodeTokens = Annotated[
    str | None,
    command_option(LOAD, "N[/N]", "With --model: decoded a frame, SPEAKING or SPEAKING/LISTENING."),
]
TokensPerSecond = Annotated[str | None, command_option(LOAD, "N", "With --model: a steady load instead.")]
TurnLength = Annotated[
    str | None, command_option(LOAD, "TIME", "With --model: mean length of a turn.", show_default="8s")
]
Confidence = Annotated[
    str | None, command_option(LOAD, "SHARE", "Of the largest safe number.", show_default="95%")
]

MemoryUtilization = Annotated[
    str | None, command_option(MEMORY, "SHARE", "Share of it that may be used.", show_default="90%")
]
InitialOccupancy = Annotated[
    str | None, command_option(MEMORY, "SHARE", "Share of the pool taken from the start.", show_default="0%")
]
ObservedFillTime = Annotated[
    str | None, command_option(MEMORY, "TIME", "A collapse seen elsewhere: what pool does it imply?")
]

Trace = Annotated[
    Path | None, command_option(TRACE, "PATH", "report.json, events.jsonl, a run's directory, CSV or JSON.")
]
Trial = Annotated[str | None, command_option(TRACE, "NAME", "Which of several in it, such as '14 sessions'.")]
TimeColumn = Annotated[str | None, command_option(TRACE, "NAME", "Name of the time column.")]
OccupancyColumn = Annotated[str | None, command_option(TRACE, "NAME", "Name of the occupancy column.")]
FitShare = Annotated[str | None, command_option(TRACE, "SHARE", "Fit the first part only, such as 30%.")]
FitUntil = Annotated[str | None, command_option(TRACE, "TIME", "Fit up to here, such as 45s.")]

MetricsUrl = Annotated[str | None, command_option(SERVER, "URL", "A server's Prometheus metrics.")]
ScrapeInterval = Annotated[
    str | None, command_option(SERVER, "TIME", "Time between scrapes.", show_default="1s")
]
Once = Annotated[bool, command_option(SERVER, "", "One forecast, then leave.", "--once")]
WatchTime = Annotated[str | None, command_option(SERVER, "TIME", "Leave after this long.")]
OccupancyMetric = Annotated[
    str | None, command_option(SERVER, "NAME", "Gauge of the pool's used share, 0..1.")
]
FitWindow = Annotated[str | None, command_option(SERVER, "TIME", "Fit the last so long.", show_default="5m")]
FailWithin = Annotated[
    str | None, command_option(SERVER, "TIME", "Exit code 3 when it is full within this long.")
]

Fleet = Annotated[bool, command_option(FLEET, "", "How many GPUs for a load?", "--fleet")]
ArrivalRate = Annotated[str | None, command_option(FLEET, "RATE", "Such as 2.5/s.")]
MeanSessionLength = Annotated[str | None, command_option(FLEET, "TIME", "Such as 4m.")]
PeakSessions = Annotated[int | None, command_option(FLEET, "N", "Sessions at the peak, instead.", min=1)]
MaxBlocking = Annotated[
    str | None, command_option(FLEET, "SHARE", "Share that may be turned away.", show_default="1%")
]
Headroom = Annotated[
    str | None, command_option(FLEET, "SHARE", "Share of each GPU's seats kept free.", show_default="0%")
]
GpusPerNode = Annotated[
    int | None, command_option(FLEET, "N", "GPUs that fail together.", min=1, show_default="1")
]
Gpus = Annotated[int | None, command_option(FLEET, "N", "Judge a fleet of this size.", min=1)]
SessionsPerGpu = Annotated[int | None, command_option(FLEET, "N", "What one GPU holds.", min=1)]
CapacityReport = Annotated[Path | None, command_option(FLEET, "PATH", "A capacity run that says so.")]
Gpu = Annotated[str | None, command_option(FLEET, "CARDS", "Cards to estimate, such as h100,l40s,rtx-4090.")]
