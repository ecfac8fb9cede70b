"""The part of a report on the load generator, and how it is made of all points of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.part import Natural, ReportPart


class LoadGeneratorStats(ReportPart):
    """How the load generator fared itself, at the worst point."""

    lateness_ms_p99: float | None = None
    """99th percentile over the steps, of how late the latest frame of each was begun."""
    send_lateness_ms_p999: float | None = None
    """99.9th percentile over the frames sent to a server, of how late each went out; null: no server was driven."""
    late_send_share: float | None = None
    """Share of those frames that went out more than 5 ms late."""
    busiest_process_cpu_share: float | None = None
    """Processor time of the busiest worker process, as a share of one core."""
    workers: Natural = 0
    """Worker processes beside the main one."""
    on_time: bool | None = None
    """False where it was too late for a verdict; null: not measured."""


def generator_of(points: Sequence[TrialResult]) -> LoadGeneratorStats:
    """Its worst figures; all null where nothing was measured."""
    late = _worst(p.load_generator_lateness_ms_p99 for p in points)
    if late is None:
        return LoadGeneratorStats()
    wires = [p.network for p in points if p.network is not None]
    return LoadGeneratorStats(
        lateness_ms_p99=late,
        send_lateness_ms_p999=_worst(wire.send_lateness_ms.p999 for wire in wires),
        late_send_share=_worst(wire.late_send_share for wire in wires),
        busiest_process_cpu_share=_worst(wire.busiest_process_cpu_share for wire in wires),
        workers=max((wire.workers for wire in wires), default=0),
        on_time=not any(p.ended_by == "load_generator" for p in points),
    )


def _worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
