"""The answer under each playback delay that was asked for, of the trials that were run."""

from __future__ import annotations

from collections.abc import Sequence

from metronome_cli.core.errors import Verdict
from metronome_cli.results.capacity_result import DelayCapacity, TrialResult

CONFIRMS = ("confirm", "single", "soak", "exceed", "repeat")  # purposes of trials whose verdict stands


def by_delay(delays_s: Sequence[float], trials: Sequence[TrialResult]) -> list[DelayCapacity]:
    """One answer per delay; empty if there is one delay. The first is the delay that the trials were judged at."""
    if len(delays_s) < 2:
        return []
    return [_answer(delay_s * 1e3, place, trials) for place, delay_s in enumerate(delays_s)]


def _answer(delay_ms: float, place: int, trials: Sequence[TrialResult]) -> DelayCapacity:
    judged = [(trial.sessions, _verdict(trial, place)) for trial in trials if trial.purpose in CONFIRMS]
    failed = min((sessions for sessions, verdict in judged if verdict == "fail"), default=None)
    held = [n for n, verdict in judged if verdict == "pass" and (failed is None or n < failed)]
    return DelayCapacity(delay_ms=delay_ms, safe_sessions=max(held, default=None), first_failing=failed)


def _verdict(trial: TrialResult, place: int) -> Verdict:
    """At the delay with that place; without sound there is one verdict."""
    if place == 0 or trial.playback is None or len(trial.playback.at_delays) < place:
        return trial.verdict
    return trial.playback.at_delays[place - 1].verdict


def in_words(answers: Sequence[DelayCapacity]) -> str:
    """ " 24 sessions at 0 ms playback delay, 36 at 120 ms."; empty if one delay was asked for."""
    parts = [
        f"{'none' if one.safe_sessions is None else one.safe_sessions} at {one.delay_ms:g} ms"
        for one in answers
    ]
    return f" By playback delay: {', '.join(parts)}." if parts else ""
