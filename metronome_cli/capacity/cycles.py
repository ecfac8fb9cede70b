"""Measures whether capacity recovers: fill a server, end all sessions, wait, and repeat.

Each cycle is a trial of N sessions and a wait without load. What stays in use is the lowest occupancy in the last 3 s
of the wait. Without metrics it is the share of sessions that the next fill could not start. The leak is their
slope per cycle with an exact interval (measure/leak.py); the first cycle is left out, since prefix caches fill once.
The wait must be longer than the time for which a server keeps an ended session, else that counts as a leak.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.core.formatting import duration, percent
from metronome_cli.measure.leak import FEWEST_CYCLES, slope_per_cycle
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.cycles_result import Cycles, Measured

FLOOR_S = 3.0  # at the end of a wait
LOOK_S = 0.5
LEFT_OUT = 1  # cycles, at the beginning

Occupancy = Callable[[], float | None]  # of the server now, 0 to 1; None: not known


def run_cycles(
    context: TrialContext,
    sessions: int,
    cycles: int,
    wait_s: float,
    occupancy: Occupancy,
    into: list[TrialResult],
    sleep: Callable[[float], None] = time.sleep,
) -> Cycles:
    """As many cycles, or those until the command is stopped; their trials are added to `into`."""
    levels: list[float | None] = []
    started: list[int] = []
    for number in range(cycles):
        if context.stop():
            break
        context.observer.phase(
            "cycle", f"{number + 1} of {cycles}: {sessions} sessions, then {duration(wait_s)} without load"
        )
        plan = TrialPlan(sessions, "cycle", ages="start", length_s=context.session_length_s, until="end")
        outcome = Trial(context, plan).run(into=into)
        started.append(outcome.result.network.sessions_started if outcome.result.network else sessions)
        levels.append(_floor(wait_s, occupancy, context.stop, sleep))
    return _result(sessions, levels, started, context.confidence)


def _floor(
    wait_s: float, occupancy: Occupancy, stop: Callable[[], bool], sleep: Callable[[float], None]
) -> float | None:
    """The lowest occupancy in the last seconds of the wait."""
    sleep(max(0.0, wait_s - FLOOR_S))
    seen: list[float] = []
    for _ in range(round(min(wait_s, FLOOR_S) / LOOK_S) + 1):
        if stop():
            break
        if (level := occupancy()) is not None:
            seen.append(level)
        sleep(LOOK_S)
    return min(seen, default=None)


def _result(sessions: int, levels: list[float | None], started: list[int], confidence: float) -> Cycles:
    known = [level for level in levels if level is not None]
    by_metrics = bool(levels) and len(known) == len(levels)
    in_use = known if by_metrics else [1 - count / sessions for count in started]
    leak = slope_per_cycle(in_use[LEFT_OUT:], confidence)
    return Cycles(
        n=len(levels),
        occupancy=known if by_metrics else [],
        started=started,
        by="occupancy" if by_metrics else "sessions",
        leak=Measured(estimate=leak.estimate, low=leak.low, high=leak.high, n=leak.n),
    )


def in_words(cycles: Cycles) -> str:
    """ "A leak of 0.98 % of the pool per cycle (0.45 to 1.43)."; what is missing if nothing can be said."""
    leak = cycles.leak
    of = "the pool" if cycles.by == "occupancy" else "its sessions"
    if leak.estimate is None:
        return f" {cycles.n} cycles are too few to measure a leak."
    text = f" It keeps {percent(leak.estimate)} of {of} per cycle"
    if leak.low is None or leak.high is None:
        return (
            f"{text}, and {leak.n} cycles give no interval: {FEWEST_CYCLES + LEFT_OUT} cycles are the fewest."
        )
    what = "a leak" if leak.low > 0 else "no leak is shown"
    return f"{text} ({percent(leak.low)} to {percent(leak.high)}, 99 % confidence): {what}."
