"""The answer at further playback delays: what the trials at hand leave open is narrowed by trials of its own.

A longer delay never starves longer, so what held at the first delay holds here as far as sound is concerned. Each
further trial is judged at its delay first, and serves the others as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from metronome_cli.capacity.by_delay import answer_at
from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.results.capacity_result import TrialResult

GROWTH = 1.25  # to the next number of sessions, while none has failed
RESOLUTION = 0.05  # of the number that held: closer is not narrowed
MOST_TRIALS = 8  # per delay


def search_other_delays(
    context: TrialContext,
    plan_of: Callable[[TrialContext, int], TrialPlan],
    into: list[TrialResult],
    until_s: float,
) -> None:
    """Run trials at each delay after the first, added to `into`, until `until_s` of `time.perf_counter`."""
    delays_s = context.playback_delays_s
    for delay_s in delays_s[1:]:
        own = replace(context, playback_delays_s=(delay_s, *(one for one in delays_s if one != delay_s)))
        for _ in range(MOST_TRIALS):
            sessions = next_sessions(delay_s, into, context.max_sessions)
            if sessions is None or context.stop() or time.perf_counter() >= until_s:
                break
            plan = replace(plan_of(own, sessions), purpose="confirm")
            Trial(own, plan).run(into=into)


def next_sessions(delay_s: float, trials: Sequence[TrialResult], most: int) -> int | None:
    """The number of sessions to try at that delay; None if it is narrow enough, or nothing held at all."""
    found = answer_at(delay_s * 1e3, trials)
    held, failed = found.safe_sessions, found.first_failing
    if held is None or held >= most:
        return None
    if failed is None:
        return min(most, max(held + 1, round(GROWTH * held)))
    return (held + failed) // 2 if failed - held > max(1, RESOLUTION * held) else None
