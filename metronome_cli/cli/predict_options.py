"""The options that only `metronome predict` has. A default that is shown here is the one of
commands/predict/predict_flags.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from metronome_cli.cli.options import LOAD, MEMORY, SERVER, SettingOption, command_option

Source = Literal["profile", "trace", "watch", "fleet"]
TRACE, FLEET, RESULT = "Trace", "Fleet", "Result"

Model = Annotated[
    Path | None, command_option(LOAD, "PATH", "A config.json, or a checkpoint directory with one.")
]
Sessions = Annotated[
    int | None, SettingOption("sessions", LOAD, "-n", min=1, metavar="N", help="Sessions at a time.")
]
RampUp = Annotated[
    str | None, command_option(LOAD, "TIME", "Session starts are spread evenly over this time.")
]
Period = Annotated[str | None, command_option(LOAD, "TIME", "With --model: length of a frame.")]
PrefillTokens = Annotated[
    str | None, command_option(LOAD, "N", "With --model: cache positions per frame from its audio.")
]
DecodeTokens = Annotated[
    str | None,
    command_option(LOAD, "N[/N]", "With --model: tokens decoded per frame, SPEAKING or SPEAKING/LISTENING."),
]
TokensPerSecond = Annotated[
    str | None, command_option(LOAD, "N", "With --model: cache positions per second, instead of per frame.")
]
TurnLength = Annotated[
    str | None, command_option(LOAD, "TIME", "With --model: mean length of a turn.", show_default="8s")
]

MemoryUtilization = Annotated[
    str | None,
    command_option(MEMORY, "SHARE", "Share of --device-memory that may be used.", show_default="90%"),
]
InitialOccupancy = Annotated[
    str | None,
    command_option(MEMORY, "SHARE", "Share of the KV pool in use at the start.", show_default="0%"),
]
ObservedFillTime = Annotated[
    str | None, command_option(MEMORY, "TIME", "Fill time seen elsewhere: which pool does it imply?")
]
Gpu = Annotated[str | None, command_option(MEMORY, "CARDS", "GPUs to estimate, such as h100,l40s,rtx-4090.")]

Confidence = Annotated[
    str | None, command_option(RESULT, "SHARE", "Confidence of the number that fits.", show_default="95%")
]
FailWithin = Annotated[
    str | None, command_option(RESULT, "TIME", "Exit with 3 if the pool is full within this time.")
]
FailProbability = Annotated[
    str | None,
    command_option(
        RESULT,
        "SHARE",
        "Probability of a full pool from which --fail-within exits with 3.",
        show_default="5%",
    ),
]

Trial = Annotated[str | None, command_option(TRACE, "NAME", "Trial to read, such as '14 sessions'.")]
TimeColumn = Annotated[str | None, command_option(TRACE, "NAME", "Name of the time column.")]
OccupancyColumn = Annotated[str | None, command_option(TRACE, "NAME", "Name of the occupancy column.")]
FitShare = Annotated[str | None, command_option(TRACE, "SHARE", "Fit only the first part, such as 30%.")]
FitUntil = Annotated[str | None, command_option(TRACE, "TIME", "Fit only up to this time, such as 45s.")]

ScrapeInterval = Annotated[
    str | None, command_option(SERVER, "TIME", "Time between two scrapes.", show_default="1s")
]
Once = Annotated[bool, command_option(SERVER, "", "Stop after the first forecast.", "--once")]
WatchTime = Annotated[str | None, command_option(SERVER, "TIME", "Stop after this time.")]
OccupancyMetric = Annotated[
    str | None, command_option(SERVER, "NAME", "Gauge of the used share of the KV pool, 0 to 1.")
]
FitWindow = Annotated[
    str | None, command_option(SERVER, "TIME", "Fit the samples of this last time.", show_default="5m")
]

ArrivalRate = Annotated[str | None, command_option(FLEET, "RATE", "Sessions that arrive, such as 2.5/s.")]
MeanSessionLength = Annotated[
    str | None, command_option(FLEET, "TIME", "Mean length of a session, such as 4m.")
]
PeakSessions = Annotated[
    int | None, command_option(FLEET, "N", "Sessions at the peak, instead of a rate.", min=1)
]
MaxBlocking = Annotated[
    str | None, command_option(FLEET, "SHARE", "Largest share of sessions rejected.", show_default="1%")
]
Headroom = Annotated[
    str | None, command_option(FLEET, "SHARE", "Share of each GPU's slots kept free.", show_default="0%")
]
GpusPerNode = Annotated[
    int | None, command_option(FLEET, "N", "GPUs that fail together.", min=1, show_default="1")
]
Gpus = Annotated[int | None, command_option(FLEET, "N", "Judge a fleet of this size.", min=1)]
SessionsPerGpu = Annotated[int | None, command_option(FLEET, "N", "Sessions that one GPU holds.", min=1)]
CapacityReport = Annotated[
    Path | None, command_option(FLEET, "PATH", "Report of a capacity run that measured it.")
]
