"""The part of a report about cycles: whether a server's capacity comes back after its sessions have left."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from metronome_cli.results.part import Natural, ReportPart


class Measured(ReportPart):
    """An estimate with its interval; null ends: the data cannot reach the confidence."""

    estimate: float | None = None
    """The estimate; null: there is none."""
    low: float | None = None
    """Lower end of the interval."""
    high: float | None = None
    """Upper end of the interval."""
    n: Natural = 0
    """Units that it rests on."""


class Cycles(ReportPart):
    """Cycles of filling a server, leaving it, and waiting."""

    n: Natural
    """How many cycles ended."""
    occupancy: list[float] = Field(default_factory=list)
    """Lowest occupancy at the end of each wait, 0 to 1; empty: the server's metrics do not tell it."""
    started: list[Natural] = Field(default_factory=list)
    """Sessions that each fill could start."""
    by: Literal["occupancy", "sessions"] = "occupancy"
    """What the leak is measured in: shares of the KV pool, or of the sessions."""
    leak: Measured = Measured()
    """Change of what stays in use per cycle, as a share, without the first cycle; interval at 99 %."""
