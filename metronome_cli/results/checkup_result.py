"""What `doctor` found on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from metronome_cli.core.errors import ExitCode
from metronome_cli.measure.machine_load import MachineLoad
from metronome_cli.measure.timer_latency import TimerLatency

FindingState = Literal["ok", "note", "wrong", "missing"]


@dataclass(frozen=True, slots=True)
class CheckupFinding:
    """A line of the check-up. `fix` says what to do, or is empty. With `wrong` or `missing` commands do not run."""

    area: str
    state: FindingState
    said: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Checkup:
    """All findings, and the figures behind them."""

    findings: tuple[CheckupFinding, ...]
    environment: Mapping[str, Any]
    wakeups: TimerLatency
    load: MachineLoad

    @property
    def exit_code(self) -> ExitCode:
        """0, or that of a usage error if something needed is missing or wrong."""
        stops = any(finding.state in ("wrong", "missing") for finding in self.findings)
        return ExitCode.USAGE if stops else ExitCode.OK
