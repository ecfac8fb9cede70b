"""Repeated trials: if the fill time is near the session length, chance decides whether a trial collapses.

Each repeat runs N sessions for the session length on a new engine, with other turns and other speech. Counted is
whether the pool filled before the end. The report adds the probability by the forecast, and a control: the same repeats
under the window policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile import Profile
from metronome_cli.measure.confidence import binomial_interval
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.policy_runs import RepeatSeries

Predict = Callable[
    [Profile, int, float], float | None
]  # (profile, sessions, session length s) -> probability


def run_repeats(
    context: TrialContext,
    policies: Sequence[CachePolicySpec],
    sessions: int,
    count: int,
    predict: Predict,
    into: list[RepeatSeries],
) -> None:
    """`count` trials of each policy, each series added to `into`. An interrupted one keeps the trials done."""
    for index, policy in enumerate(policies):
        under = context.under(str(policy))
        points: list[TrialResult] = []
        try:
            _series(under, sessions, count, (index, len(policies)), points)
        finally:
            whole = [point for point in points if point.ended_by not in ("interrupted", "backend_error")]
            into.append(_counted(under.profile, sessions, context.session_length_s, whole, predict))
            context.observer.event("repeats", into[-1].model_dump(mode="json"))


def _series(
    context: TrialContext, sessions: int, count: int, place: tuple[int, int], into: list[TrialResult]
) -> None:
    for trial in range(count):
        if context.stop():
            break
        context.progress.span(
            (place[0] + trial / count) / place[1], (place[0] + (trial + 1) / count) / place[1]
        )
        seeded = replace(context, seed=context.seed + trial)
        plan = TrialPlan(sessions, "repeat", ages="start", length_s=context.session_length_s, until="end")
        Trial(seeded, plan).run(into)


def _counted(
    profile: Profile, sessions: int, length_s: float, points: Sequence[TrialResult], predict: Predict
) -> RepeatSeries:
    instants = [point.pool_full_at_s for point in points]
    collapsed = sum(instant is not None for instant in instants)
    low, high = binomial_interval(collapsed, len(points)) if points else (None, None)
    return RepeatSeries(
        policy=profile.policy,
        sessions=sessions,
        session_length_s=length_s,
        repeats=len(points),
        collapsed=collapsed,
        collapsed_share_low=low,
        collapsed_share_high=high,
        forecast_probability=predict(profile, sessions, length_s),
        pool_full_at_s=instants,
    )


def predicted_collapse(profile: Profile, sessions: int, length_s: float) -> float | None:
    """P(the pool fills before the sessions end), from the profile alone; None where it has no pool."""
    if profile.kv_pool is None:
        return None
    from metronome_cli.forecast.pool_forecast import collapse_probability

    return collapse_probability(profile, sessions, length_s)
