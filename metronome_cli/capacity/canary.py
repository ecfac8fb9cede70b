"""The canary: one session that is alone on the server first, twice, and then one of those under load.

Session 0 says the same at the same times in every trial, so its turns are paired by number (measure/paired.py). The
second pass alone tells what is not load: if it differs by more than a tenth, the server was not idle, and that is said.
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
        context.observer.notice("the canary had no answer alone: what load adds to replies is not known")
        return None
    if is_repeatable(first, again) is False:
        context.observer.notice(
            "two passes of the canary alone differ by more than a tenth: is the server idle?"
        )
    return AloneReplies(first, again)


def _pass(context: TrialContext, length_s: float) -> dict[int, float]:
    trial = Trial(context, TrialPlan(1, "alone", ages="start", length_s=length_s, until="end"))
    trial.measure()
    listener = trial.load.recorder.listener
    return {} if listener is None else listener.replies_ms(CANARY)
