"""From counts to a verdict of three values: pass, fail, inconclusive.

Estimand: every share objective bounds the share of *frames* that are bad: "p99<80ms" allows 1 % of frames with a
latency over 80 ms, "misses<0.1%" 0.1 % of frames over the deadline, "empty<1%" 1 % of the frames that owed output
without any. The share is what is printed and what is judged.
Formula: frames of one batch fail together, so a batch is a cluster. With x bad of m frames in each batch, the share is
s = sum x / sum m, and n = (sum m)^2 / sum m^2 is Kish's effective number of batches (Survey Sampling, 1965). Exact
one-sided bounds (measure/confidence.py) are taken of k = n s in n. Bad batches that come in bursts are worth fewer:
the trial is cut into blocks of 10 s or 10 periods, at least 8 of 1 s or more; deff = max(1, variance of the bad per
block / (n_b s (1 - s))), and k and n are divided by it.
"max", "miss_streak", "occupancy", "fell_behind" bound the largest value seen: one excess fails, and a pass needs as
many batches as p99 does. No data and a run that drifts never pass.
A late load generator only makes latency worse, since latency counts from the planned time. So a trial that passes
anyway passes, one that fails by more than twice the generator's delay fails, and the rest is inconclusive.
Known error: a burst that is rarer than the trial is long is not seen.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from metronome_cli.core.errors import Verdict
from metronome_cli.measure.confidence import (
    batches_needed,
    batches_to_settle,
    is_proved,
    is_refuted,
    lower_bound,
)
from metronome_cli.measure.judgement import Judgement, make_judgement
from metronome_cli.measure.listener_verdict import judge_listener
from metronome_cli.measure.objective import Objective
from metronome_cli.measure.recorder import DELAY_FACTOR, Recorder

LATE_SHARE = 0.10  # of the deadline: a batch submitted later than this counts as late
LATE_SHARE_OF_BATCHES = 0.01
STALLED_MS = 500.0  # one batch submitted so late delays every session
DRIFT_RATIO = 1.3  # between the medians of the two halves of a trial
DRIFT_SHARE = 0.10  # of the deadline: a smaller drift is noise
EXTREME_SHARE = 0.01
BLOCK_S = 10.0  # of a block, and
BLOCK_PERIODS = 10  # at the least
FEWEST_BLOCKS = 8


def tail_share(metric: str) -> float | None:
    """1 - q of a percentile metric: 0.01 for "p99", 0.001 for "p99.9"; None for others."""
    if metric.startswith("p") and metric[1:].replace(".", "", 1).isdigit():
        return round(1 - float(metric[1:]) / 100, 9)
    return None


def allowed_share(objective: Objective) -> float | None:
    """The share of bad frames that the objective allows; None for one on an extreme."""
    return objective.limit if objective.metric in ("misses", "empty") else tail_share(objective.metric)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Bad frames of all, in `effective` batches that behave as independent ones."""

    bad_frames: int
    frames: int
    effective: float

    @property
    def share(self) -> float:
        return self.bad_frames / self.frames

    @property
    def bad(self) -> float:
        return self.effective * self.share


def judge(
    objective: Objective,
    recorder: Recorder,
    occupancy_max: float | None,
    confidence: float = 0.99,
    *,
    anyway: bool = False,
    delay_s: float | None = None,
) -> Judgement:
    """One objective against what was measured.

    `anyway`: as if the load generator had been on time; `delay_s`: one of the listener's playback delays.
    """
    total, share = recorder.total, allowed_share(objective)
    if objective.of_listener:
        return judge_listener(objective, recorder.listener, total.batches, confidence, delay_s)
    if total.batches == 0:
        return _open(objective, confidence, "no frame was measured", batches_needed(0.01))
    if share is None:
        value = _extreme(objective.metric, recorder, occupancy_max, anyway)
        if value is None:
            return _open(objective, confidence, "not measured: the backend does not show it", 0)
        return _judge_extreme(objective, value, total.batches, confidence)
    sample = _sample(objective, recorder, anyway)
    if sample is None:
        return _open(objective, confidence, "no frame owed output", batches_needed(share, confidence))
    quantile = tail_share(objective.metric)
    measured = sample.share if quantile is None else total.latency.percentile(1 - quantile)
    ratio = max(1.0, total.batches / sample.effective)
    return _judge_share(objective, measured, sample, share, confidence, ratio)


def _open(objective: Objective, confidence: float, reason: str, missing: int) -> Judgement:
    nothing = make_judgement(objective, "inconclusive", None, confidence, reason, missing)
    return replace(nothing, promising=missing == 0)


def _sample(objective: Objective, recorder: Recorder, anyway: bool) -> _Sample | None:
    """The frames that the objective is about; None where there are none."""
    total, name = recorder.total, _column(objective)
    frames, frames_sq = (total.owed, total.owed_sq) if name == "owed" else (total.frames, total.frames_sq)
    if not frames:
        return None
    if name == "owed":
        bad = total.empty
    elif objective.metric == "misses":
        bad = total.misses_anyway if anyway else total.misses
    else:
        bad = total.frames_over(objective.limit, anyway=anyway)
    effective = frames * frames / frames_sq
    return _Sample(bad, frames, effective / _design_effect(objective, recorder, bad / frames))


def _column(objective: Objective) -> str:
    return "owed" if objective.metric == "empty" else "frames"


def _design_effect(objective: Objective, recorder: Recorder, share: float) -> float:
    """How much more the bad batches of a block vary than independent ones would; 1 at the least."""
    if not 0 < share < 1:
        return 1.0
    series = recorder.seconds
    block_s = max(BLOCK_S, BLOCK_PERIODS * recorder.period_s)
    per_block = max(1, math.floor(min(block_s / series.each_s, len(series.entries) / FEWEST_BLOCKS)))
    counts: list[tuple[float, float]] = []  # effective batches and bad ones, of each block
    for start in range(0, len(series.entries) - per_block + 1, per_block):
        entries = series.entries[start : start + per_block]
        if _column(objective) == "owed":
            frames, squares = sum(e.owed for e in entries), sum(e.owed_sq for e in entries)
            bad = sum(e.empty for e in entries)
        else:
            frames, squares = sum(e.frames for e in entries), sum(e.frames_sq for e in entries)
            place = None if objective.metric == "misses" else recorder.limits_ms.index(objective.limit)
            bad = sum(e.late if place is None else e.over[place] for e in entries)
        if frames:
            counts.append((frames * frames / squares, frames * bad / squares))
    if len(counts) < FEWEST_BLOCKS // 2:
        return 1.0
    expected = sum(n for n, _ in counts) / len(counts) * share * (1 - share)
    return max(1.0, sum((k - n * share) ** 2 for n, k in counts) / (len(counts) - 1) / expected)


def _extreme(metric: str, recorder: Recorder, occupancy_max: float | None, anyway: bool) -> float | None:
    total = recorder.total
    values = {
        "max": total.max_anyway_ms if anyway else total.latency.max_ms,
        "miss_streak": float(recorder.miss_streak_max_anyway if anyway else recorder.miss_streak_max),
        "occupancy": occupancy_max,
        "fell_behind": 0.0
        if anyway and may_have_made_late(recorder)
        else float(recorder.ended["fell_behind"]),
    }
    return values[metric]


def may_have_made_late(recorder: Recorder) -> bool:
    """Whether the load generator's own delay can explain a session that fell behind."""
    backlog_s = BLOCK_PERIODS * recorder.period_s
    return DELAY_FACTOR * recorder.delay_max_s >= backlog_s or stall_reason(recorder) is not None


def _judge_share(
    objective: Objective,
    measured: float | None,
    sample: _Sample,
    share: float,
    confidence: float,
    ratio: float,
) -> Judgement:
    bad, effective = sample.bad, sample.effective
    reason, missing = f"{sample.bad_frames:,} of {sample.frames:,} frames over", 0
    verdict: Verdict = "inconclusive"
    if is_proved(bad, effective, share, confidence):
        verdict = "pass"
    elif is_refuted(bad, effective, share, confidence):
        verdict = "fail"
    else:
        missing = math.ceil(ratio * batches_to_settle(bad, effective, share, confidence))
        reason += f"; {missing:,} more batches without one would settle it"
    result = make_judgement(objective, verdict, measured, confidence, reason, missing)
    promising = result.promising and bad <= max(1.0, share * effective)
    return replace(result, bad=bad, effective=effective, promising=promising)


def _judge_extreme(objective: Objective, value: float, batches: int, confidence: float) -> Judgement:
    if not objective.holds(value):
        return make_judgement(objective, "fail", value, confidence, "exceeded at least once")
    missing = batches_needed(EXTREME_SHARE, confidence) - batches
    if missing > 0:
        reason = f"{missing:,} batches short of a proof"
        return make_judgement(objective, "inconclusive", value, confidence, reason, missing)
    return make_judgement(objective, "pass", value, confidence, f"never exceeded in {batches:,} batches")


def drift_reason(recorder: Recorder) -> str | None:
    """Why the trial was not steady: its second half slower than its first beyond noise. None if it was."""
    worst = [batch.worst_ms for batch in recorder.batches]
    if len(worst) < 40:
        return None
    first, second = statistics.median(worst[: len(worst) // 2]), statistics.median(worst[len(worst) // 2 :])
    if second > DRIFT_RATIO * first and second - first > DRIFT_SHARE * recorder.deadline_ms:
        return f"not steady: median latency of a batch went from {first:.1f} to {second:.1f} ms"
    return None


def lateness_reason(recorder: Recorder) -> str | None:
    """Why the load generator may have been the limit: it stalled, or surely more than 1 % of its batches were late."""
    if why := stall_reason(recorder):
        return why
    lateness = recorder.lateness
    late = lateness.above(LATE_SHARE * recorder.deadline_ms)
    if lower_bound(late, lateness.total) > LATE_SHARE_OF_BATCHES:
        return f"the load generator was late: p99 {lateness.percentile(0.99):.1f} ms"
    return None


def stall_reason(recorder: Recorder) -> str | None:
    """What delayed every session at once and was not the engine; None if nothing did.

    This process was not scheduled, or one batch was submitted very late.
    """
    if recorder.stalled_s:
        return f"this process was not scheduled for {recorder.stalled_s:.1f} s"
    latest_ms = recorder.lateness.max_ms or 0.0
    if latest_ms > max(STALLED_MS, recorder.deadline_ms):
        return f"the load generator was late: one batch by {latest_ms:.0f} ms"
    return None


def is_timing(metric: str) -> bool:
    """Whether a late load generator could have made this metric worse."""
    return tail_share(metric) is not None or metric in ("max", "misses", "miss_streak", "fell_behind")


def judge_all(
    objectives: Sequence[Objective],
    recorder: Recorder,
    occupancy_max: float | None,
    confidence: float,
    delay_s: float | None = None,
) -> list[Judgement]:
    """Every objective, what is heard at one of the listener's playback delays.

    A failure that the load generator's own lateness could have caused is inconclusive.
    """
    late = lateness_reason(recorder)
    judged = [judge(one, recorder, occupancy_max, confidence, delay_s=delay_s) for one in objectives]
    if late is None:
        return judged
    return [
        replace(one, verdict="inconclusive", reason=late)
        if one.verdict == "fail"
        and (is_timing(one.metric) or objective.of_listener)
        and not _fails_anyway(objective, recorder, confidence)
        else one
        for objective, one in zip(objectives, judged, strict=True)
    ]


def _fails_anyway(objective: Objective, recorder: Recorder, confidence: float) -> bool:
    if recorder.stalled_s or objective.of_listener:  # how long each frame was delayed is not known
        return False
    return judge(objective, recorder, None, confidence, anyway=True).verdict == "fail"


def overall_verdict(judgements: Sequence[Judgement], unsteady: str | None = None) -> tuple[Verdict, str]:
    """The verdict of a trial: fail beats inconclusive beats pass; no objective is no pass."""
    if failed := [j for j in judgements if j.verdict == "fail"]:
        return "fail", _reasons(failed)
    if unsteady:
        return "inconclusive", unsteady
    if undecided := [j for j in judgements if j.verdict == "inconclusive"]:
        return "inconclusive", _reasons(undecided)
    return ("pass", "") if judgements else ("inconclusive", "no objective was given")


def _reasons(judgements: Sequence[Judgement]) -> str:
    """Each reason once, after the objectives that share it."""
    sharing: dict[str, list[str]] = {}
    for judgement in judgements:
        sharing.setdefault(judgement.reason, []).append(judgement.objective)
    return "; ".join(f"{', '.join(objectives)}: {reason}" for reason, objectives in sharing.items())
