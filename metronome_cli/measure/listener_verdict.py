"""Verdicts on what listeners heard: shares of turns, answers and periods, times beyond a limit, the longest gap.

Estimand: the share of units that are bad, a unit being a listener in one period (`underrun`), an answer (`gappy`,
`broken`, `rtf`), a turn (`unanswered`, `talked_over`, `reply`), a barge-in (`unyielding`, `yield`) or a backchannel
(`startled`). `reply.p95<2s` bounds the share of turns that were answered after more than 2 s or not at all. Bounds are
exact, of counts thinned by the design effect of neighbours (measure/block_share.py). `gap` bounds the longest gap, as
`max` does the latest frame. No data is no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from metronome_cli.core.errors import Verdict
from metronome_cli.measure.block_share import BlockShare
from metronome_cli.measure.confidence import batches_needed, batches_to_settle, is_proved, is_refuted
from metronome_cli.measure.judgement import Judgement, make_judgement
from metronome_cli.measure.listener import Listener
from metronome_cli.measure.objective import ADDED, Objective

EXTREME_SHARE = 0.01  # a gap that never exceeded its limit needs as many batches as p99
FEWEST_PAIRS = 8  # that reach 99 %
RATIO_SCALE = 1000.0  # of the values of `rtf`
UNITS = {
    "underrun": "periods of a listener", "gappy": "answers", "broken": "answers", "rtf": "answers",
    "unanswered": "turns", "talked_over": "turns", "reply": "turns", "unyielding": "barge-ins",
    "yield": "barge-ins", "startled": "backchannels",
}  # fmt: skip


def judge_listener(
    objective: Objective,
    listener: Listener | None,
    batches: int,
    confidence: float,
    delay_s: float | None = None,
) -> Judgement:
    """One objective on what was heard; `batches` of the trial, to say how many more would settle it.

    `delay_s`: one of the listener's playback delays; None: its first.
    """
    if listener is None:
        return make_judgement(
            objective, "inconclusive", None, confidence, "not measured: nothing is listened to"
        )
    if objective.metric == "gap":
        return _judge_gap(objective, listener, batches, confidence, delay_s)
    if objective.metric == ADDED:
        return _judge_added(objective, listener, batches, confidence)
    if (time := objective.time) is not None:
        name, quantile = time
        values, scale = listener.times[name], RATIO_SCALE if name == "rtf" else 1.0
        measured = values.percentile(quantile)
        later_ms = 0.0 if delay_s is None or name != "reply" else (delay_s - listener.setup.delay_s) * 1e3
        share = values.over[round(objective.limit * scale - later_ms, 6)]
        measured = None if measured is None else measured + later_ms
        return _judge_share(
            objective,
            share,
            None if measured is None else measured / scale,
            round(1 - quantile, 9),
            (batches, UNITS[name], confidence),
        )
    share = listener.share(objective.metric, delay_s)
    return _judge_share(
        objective, share, share.share, objective.limit, (batches, UNITS[objective.metric], confidence)
    )


def limits_of(objectives: Sequence[Objective], delays_s: Sequence[float]) -> dict[str, tuple[float, ...]]:
    """The limits of each time that objectives name, as `ListenerSetup.limits` takes them.

    A longer playback delay makes each reply later, which is the same as a shorter limit.
    """
    limits: dict[str, tuple[float, ...]] = {}
    for objective in objectives:
        if (time := objective.time) is not None:
            scale = RATIO_SCALE if time[0] == "rtf" else 1.0
            later_ms = [1e3 * (d - delays_s[0]) for d in delays_s] if time[0] == "reply" else [0.0]
            own = [round(objective.limit * scale - later, 6) for later in later_ms]
            limits[time[0]] = (*limits.get(time[0], ()), *own)
    return limits


def _judge_share(
    objective: Objective,
    share: BlockShare,
    measured: float | None,
    allowed: float,
    told: tuple[int, str, float],
) -> Judgement:
    batches, noun, confidence = told
    bad, units = share.effective()
    if not share.units:
        return make_judgement(objective, "inconclusive", None, confidence, f"no {noun} were seen")
    reason, missing = f"{share.bad:,} of {share.units:,} {noun} over", 0
    verdict: Verdict = "inconclusive"
    if is_proved(bad, units, allowed, confidence):
        verdict = "pass"
    elif is_refuted(bad, units, allowed, confidence):
        verdict = "fail"
    else:
        more = batches_to_settle(bad, units, allowed, confidence)
        missing = math.ceil(more * max(1.0, batches / units) if units else more)
        reason += f"; about {missing:,} more batches without one would settle it"
    found = make_judgement(objective, verdict, measured, confidence, reason, missing)
    return replace(
        found, bad=bad, effective=units, promising=found.promising and bad <= max(1.0, allowed * units)
    )


def _judge_added(objective: Objective, listener: Listener, batches: int, confidence: float) -> Judgement:
    """The median of the canary's differences: the ends of its exact interval decide."""
    added = listener.added(confidence)
    if added is None or added.estimate is None:
        return make_judgement(
            objective, "inconclusive", None, confidence, "no turn was answered alone and under load"
        )
    if added.low is None or added.high is None:
        missing = round(batches * (FEWEST_PAIRS / added.n - 1))
        reason = f"{added.n} pairs of turns; {FEWEST_PAIRS} are the fewest"
        return make_judgement(objective, "inconclusive", added.estimate, confidence, reason, missing)
    reason = f"{added.low:+.0f} to {added.high:+.0f} ms, {added.n} pairs of turns"
    held = objective.holds(added.high)
    verdict: Verdict = "pass" if held else "fail" if not objective.holds(added.low) else "inconclusive"
    return make_judgement(
        objective, verdict, added.estimate, confidence, reason, batches if verdict == "inconclusive" else 0
    )


def _judge_gap(
    objective: Objective, listener: Listener, batches: int, confidence: float, delay_s: float | None
) -> Judgement:
    longest_s = listener.longest_gap_at_s(listener.setup.delay_s if delay_s is None else delay_s)
    if longest_s is None:
        return make_judgement(objective, "inconclusive", None, confidence, "no sound came")
    if not objective.holds(longest_s * 1e3):
        return make_judgement(objective, "fail", longest_s * 1e3, confidence, "exceeded at least once")
    missing = batches_needed(EXTREME_SHARE, confidence) - batches
    if missing > 0:
        reason = f"{missing:,} batches short of a proof"
        return make_judgement(objective, "inconclusive", longest_s * 1e3, confidence, reason, missing)
    return make_judgement(
        objective, "pass", longest_s * 1e3, confidence, f"never exceeded in {batches:,} batches"
    )
