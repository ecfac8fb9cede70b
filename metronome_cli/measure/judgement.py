"""The verdict on one objective of a trial."""

from __future__ import annotations

from dataclasses import dataclass

from metronome_cli.core.errors import Verdict
from metronome_cli.measure.objective import Objective


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict on one objective. `measured` is in the objective's unit.

    `bad` of `effective` batches, of which `allowed` may be bad; `batches_missing` good ones would settle it.
    `promising`: not refuted, and with no more bad batches than the objective allows in so many, or a single one.
    """

    objective: str
    metric: str
    verdict: Verdict
    measured: float | None
    limit: float
    unit: str
    confidence: float
    reason: str = ""
    batches_missing: int = 0
    bad: float = 0.0
    effective: float = 0.0
    promising: bool = False


def make_judgement(
    objective: Objective,
    verdict: Verdict,
    measured: float | None,
    confidence: float,
    reason: str,
    missing: int = 0,
) -> Judgement:
    """The verdict `verdict` on `objective`, `missing` batches short of another."""
    return Judgement(
        str(objective),
        objective.metric,
        verdict,
        measured,
        objective.limit,
        objective.unit,
        confidence,
        reason,
        missing,
        promising=verdict != "fail",
    )
