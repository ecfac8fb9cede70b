"""The canary: one session that runs alone on the server twice, and then among the sessions under load.

Session 0 has the same speech at the same times in every trial, so its turns are paired by number (measure/paired.py).
If the second pass alone differs from the first by more than 10 %, the server was not idle, and a notice says so.
"""

from __future__ import annotations

from metronome_cli.capacity.context import AloneReplies, TrialContext
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.measure.listener import CANARY
from metronome_cli.measure.paired import is_repeatable


def alone_replies(context: TrialContext, length_s: float) -> AloneReplies | None:
    """Two passes alone, each as long as a session; None if no turn was answered."""
    first, again = (_pass(context, length_s) for _ in range(2))
    if not first:
        context.observer.notice("the canary got no answer alone: the effect of load on replies is unknown")
        return None
    if is_repeatable(first, again) is False:
        context.observer.notice(
            "two passes of the canary alone differ by more than 10 %; check that the server is idle"
        )
    return AloneReplies(first, again)


def _pass(context: TrialContext, length_s: float) -> dict[int, float]:
    trial = Trial(context, TrialPlan(1, "alone", ages="start", length_s=length_s, until="end"))
    trial.measure()
    listener = trial.load.recorder.listener
    return {} if listener is None else listener.replies_ms(CANARY)
