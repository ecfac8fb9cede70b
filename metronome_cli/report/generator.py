"""How the load generator fared over all points of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metronome_cli.report.model import Generator, Point


def generator_of(points: Sequence[Point]) -> Generator:
    """Its worst figures; all null where nothing was measured."""
    late = _worst(p.generator_late_ms_p99 for p in points)
    if late is None:
        return Generator()
    wires = [p.wire for p in points if p.wire is not None]
    return Generator(
        late_ms_p99=late,
        pacing_ms_p999=_worst(wire.pacing_late_ms.p999 for wire in wires),
        late_share=_worst(wire.late_share for wire in wires),
        cpu_share=_worst(wire.cpu_share for wire in wires),
        workers=max((wire.workers for wire in wires), default=0),
        healthy=not any(p.ended_by == "generator" for p in points),
    )


def _worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
