"""Capacity at each requested playback delay, from the trials that were run."""

from __future__ import annotations

from collections.abc import Sequence

from metronome_cli.core.errors import Verdict
from metronome_cli.results.capacity_result import DelayCapacity, TrialResult

CONFIRMS = ("confirm", "single", "soak", "exceed", "repeat")  # purposes of trials whose verdict stands


def by_delay(delays_s: Sequence[float], trials: Sequence[TrialResult]) -> list[DelayCapacity]:
    """One answer per delay; empty if there is one delay. The first is the delay that the trials were judged at."""
    if len(delays_s) < 2:
        return []
    return [answer_at(delay_s * 1e3, trials) for delay_s in delays_s]


def answer_at(delay_ms: float, trials: Sequence[TrialResult]) -> DelayCapacity:
    """Return the capacity at one delay."""
    judged = [
        (trial.sessions, verdict)
        for trial in trials
        if trial.purpose in CONFIRMS and (verdict := verdict_at(trial, delay_ms)) is not None
    ]
    failed = min((sessions for sessions, verdict in judged if verdict == "fail"), default=None)
    held = [n for n, verdict in judged if verdict == "pass" and (failed is None or n < failed)]
    return DelayCapacity(delay_ms=delay_ms, safe_sessions=max(held, default=None), first_failing=failed)


def verdict_at(trial: TrialResult, delay_ms: float) -> Verdict | None:
    """The trial's verdict at that delay; without sound there is one for all. None if it was not judged there."""
    if trial.playback is None or trial.playback.delay_ms == delay_ms:
        return trial.verdict
    return next((one.verdict for one in trial.playback.at_delays if one.delay_ms == delay_ms), None)


def in_words(answers: Sequence[DelayCapacity]) -> str:
    """ " 24 sessions at 0 ms playback delay, 36 at 120 ms."; empty if one delay was asked for."""
    parts = [
        f"{'none' if one.safe_sessions is None else one.safe_sessions} at {one.delay_ms:g} ms"
        for one in answers
    ]
    return f" By playback delay: {', '.join(parts)}." if parts else ""
