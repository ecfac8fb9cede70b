"""From counts to a verdict of three values: pass, fail, inconclusive.

An objective on a share ("p99<80ms" bounds the share of steps over 80 ms by 1 %, a step being as late as its
latest frame; "misses<0.1%" the share of steps
with a miss by 0.1 %) is judged by the exact bounds of measure/confidence.py: proved, refuted, or open. An objective
on an extreme ("max", "miss_streak", "occupancy",
               "fell_behind") fails when it was passed once and holds only with as many
steps as p99 needs. No data, a run that drifts, and a generator that was itself late never pass.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from metronome_cli.core.errors import Verdict
from metronome_cli.measure.confidence import batches_needed, lower_bound, upper_bound
from metronome_cli.measure.ledger import Ledger

LATE_SHARE = 0.10  # of the deadline: a step begun later than this was late by the generator's own fault
LATE_SHARE_OF_STEPS = 0.01
STALLED_MS = 500.0  # a single step begun so late by the generator's own fault makes every session miss
DRIFT_RATIO = 1.3  # between the medians of the two halves of a run
DRIFT_SHARE = 0.10  # of the deadline: a smaller drift is noise
EXTREME_SHARE = 0.01


class ObjectiveLike(Protocol):
    """What is judged (measure/objective.py)."""

    @property
    def metric(self) -> str: ...
    @property
    def limit(self) -> float: ...
    @property
    def unit(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """One objective's verdict. `measured` is in the objective's unit; `steps_missing` would settle an open one.

    `promising`: not refuted, and with no more bad steps than the objective allows in so many, or a single one.
    """

    objective: str
    metric: str
    verdict: Verdict
    measured: float | None
    limit: float
    unit: str
    confidence: float
    reason: str = ""
    steps_missing: int = 0
    bad_steps: int = 0
    promising: bool = False


@dataclass(frozen=True, slots=True)
class TrialEvidence:
    """All that a verdict rests on."""

    ledger: Ledger
    occupancy_max: float
    lost_beat: int


def allowed_share(metric: str) -> float | None:
    """1 - q of a percentile metric: 0.01 for "p99", 0.001 for "p99.9"; None for others."""
    if metric.startswith("p") and metric[1:].replace(".", "", 1).isdigit():
        return round(1 - float(metric[1:]) / 100, 9)
    return None


def share_of(objective: ObjectiveLike) -> float | None:
    """The share of bad steps that the objective allows; None for one on an extreme."""
    if objective.metric in ("misses", "empty"):
        return objective.limit
    return allowed_share(objective.metric)


def judge(objective: ObjectiveLike, evidence: TrialEvidence, confidence: float = 0.99) -> Judgement:
    """One objective against what was measured."""
    total = evidence.ledger.total
    share = allowed_share(objective.metric)
    if total.steps == 0:
        nothing = _result(
            objective, "inconclusive", None, confidence, "no step was measured", batches_needed(0.01)
        )
        return replace(nothing, promising=False)
    if share is not None:
        measured = total.step_latency.percentile(1 - share)
        bad = total.steps_over[total.limits_ms.index(objective.limit)]
        return _judge_share(objective, measured, bad, total.steps, share, confidence)
    if objective.metric == "misses":
        return _judge_share(
            objective,
            total.misses / total.frames,
            total.missed_steps,
            total.steps,
            objective.limit,
            confidence,
        )
    if objective.metric == "empty":
        return _judge_share(
            objective,
            total.empty_frames / total.frames,
            total.empty_steps,
            total.steps,
            objective.limit,
            confidence,
        )
    return _judge_extreme(objective, _extreme(objective.metric, evidence), total.steps, confidence)


def _extreme(metric: str, evidence: TrialEvidence) -> float:
    values: dict[str, float | None] = {
        "max": evidence.ledger.total.latency.max_ms,
        "miss_streak": float(evidence.ledger.worst_streak),
        "occupancy": evidence.occupancy_max,
        "fell_behind": float(evidence.lost_beat),
    }
    value = values[metric]
    assert value is not None  # there was a step
    return value


def _judge_share(
    objective: ObjectiveLike, measured: float | None, bad: int, steps: int, share: float, confidence: float
) -> Judgement:
    reason, missing = f"{bad:,} of {steps:,} step{'' if steps == 1 else 's'} over", 0
    verdict: Verdict = "inconclusive"
    if is_proved(bad, steps, share, confidence):
        verdict = "pass"
    elif is_refuted(bad, steps, share, confidence):
        verdict = "fail"
    else:
        missing = batches_to_settle(bad, steps, share, confidence)
        reason += f"; {missing:,} more good ones would settle it"
    result = _result(objective, verdict, measured, confidence, reason, missing)
    return replace(result, bad_steps=bad, promising=result.promising and bad <= max(1, share * steps))


def is_refuted(bad: int, steps: int, share: float, confidence: float) -> bool:
    """Whether `bad` of `steps` refute the bound; looked at often, so at a tenth of the error."""
    return lower_bound(bad, steps, 1 - (1 - confidence) / 10) > share or (share == 0 and bad > 0)


def is_proved(bad: int, steps: int, share: float, confidence: float) -> bool:
    """Whether `bad` of `steps` prove the bound, in a run that looks again and again until they do.

    A run without a bad step has one look: at the step count that the confidence asks for. A run with one goes on and
    is looked at often, so each of those looks must hold at a tenth of the error. At a true share of exactly 1 %,
    looking every 35 steps up to 1,000, a pass then comes out wrong in 1.5 % of runs rather than 2.3 %.
    """
    return upper_bound(bad, steps, confidence if bad == 0 else 1 - (1 - confidence) / 10) <= share


def batches_to_settle(bad: int, steps: int, share: float, confidence: float) -> int:
    """Further good steps after which `bad` of all would prove the share."""
    low, high = 0, max(batches_needed(share, confidence), steps)
    while not is_proved(bad, steps + high, share, confidence) and high < 10**9:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if is_proved(bad, steps + middle, share, confidence):
            high = middle
        else:
            low = middle + 1
    return low


def _judge_extreme(objective: ObjectiveLike, value: float, steps: int, confidence: float) -> Judgement:
    if not _holds(objective, value):
        return _result(objective, "fail", value, confidence, "passed at least once")
    missing = batches_needed(EXTREME_SHARE, confidence) - steps
    if missing > 0:
        return _result(
            objective, "inconclusive", value, confidence, f"{missing:,} steps short of a proof", missing
        )
    return _result(objective, "pass", value, confidence, f"never passed in {steps:,} steps")


def _holds(objective: ObjectiveLike, value: float) -> bool:
    return value <= objective.limit if "<=" in str(objective) else value < objective.limit


def _result(
    objective: ObjectiveLike,
    verdict: Verdict,
    measured: float | None,
    confidence: float,
    reason: str,
    missing: int = 0,
) -> Judgement:
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


def drift_reason(ledger: Ledger) -> str | None:
    """Why the run was not steady: its second half slower than its first beyond noise. None when steady."""
    steps = list(ledger.trend)
    if len(steps) < 40:
        return None
    first, second = statistics.median(steps[: len(steps) // 2]), statistics.median(steps[len(steps) // 2 :])
    if second > DRIFT_RATIO * first and second - first > DRIFT_SHARE * ledger.total.deadline_ms:
        return f"not steady: median step latency went from {first:.1f} to {second:.1f} ms"
    return None


def lateness_reason(ledger: Ledger) -> str | None:
    """Why the load generator was the limit: it stalled, or more than 1 % of its steps began late, surely. None when
    it was not.
    """
    if why := stall_reason(ledger):
        return why
    lateness = ledger.lateness
    late = lateness.above(LATE_SHARE * ledger.total.deadline_ms)
    if lower_bound(late, lateness.total) > LATE_SHARE_OF_STEPS:
        return f"the load generator itself was late: p99 {lateness.percentile(0.99):.1f} ms"
    return None


def stall_reason(ledger: Ledger) -> str | None:
    """What made every session late at once and was not the engine; None when nothing did.

    This process stood still, or one step began very late by the generator's own fault.
    """
    if ledger.still_s:
        return f"this process was suspended, or kept from every core, for {ledger.still_s:.1f} s"
    latest_ms = ledger.lateness.max_ms or 0.0
    if latest_ms > max(STALLED_MS, ledger.total.deadline_ms):
        return f"the load generator itself was late: one step by {latest_ms:.0f} ms"
    return None


def is_timing(metric: str) -> bool:
    """Whether a late load generator could have made this metric worse."""
    return allowed_share(metric) is not None or metric in ("max", "misses", "miss_streak", "fell_behind")


def without_timing_verdicts(judgements: Sequence[Judgement], late: str | None) -> list[Judgement]:
    """The same, but where the generator was `late` itself, what depends on time says nothing."""
    return [
        replace(one, verdict="inconclusive", reason=late) if late and is_timing(one.metric) else one
        for one in judgements
    ]


def overall_verdict(
    judgements: Sequence[Judgement], unsteady: str | None = None, late: str | None = None
) -> tuple[Verdict, str]:
    """The verdict of a point: fail beats inconclusive beats pass; no objective is no pass.

    A generator that was `late` takes the blame for every timing objective that failed.
    """
    if failed := [j for j in without_timing_verdicts(judgements, late) if j.verdict == "fail"]:
        return "fail", _reasons(failed)
    if late or unsteady:
        return "inconclusive", late or unsteady or ""
    undecided = [j for j in judgements if j.verdict == "inconclusive"]
    if undecided:
        return "inconclusive", _reasons(undecided)
    return ("pass", "") if judgements else ("inconclusive", "no objective was given")


def _reasons(judgements: Sequence[Judgement]) -> str:
    """Each reason once, after the objectives that share it."""
    sharing: dict[str, list[str]] = {}
    for judgement in judgements:
        sharing.setdefault(judgement.reason, []).append(judgement.objective)
    return "; ".join(f"{', '.join(objectives)}: {reason}" for reason, objectives in sharing.items())
