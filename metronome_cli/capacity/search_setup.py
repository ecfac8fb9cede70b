"""Makes the search of a command: its trials, first stage, limits and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.queue_model import Stepping
from metronome_cli.capacity.ramp import Ramp, SearchMethod
from metronome_cli.capacity.search import Search
from metronome_cli.capacity.time_budget import TimeBudget
from metronome_cli.capacity.trial import Trial, TrialOutcome
from metronome_cli.capacity.trial_plan import TrialPlan, TrialPlans
from metronome_cli.measure.objective import Objective
from metronome_cli.measure.verdict import tail_share
from metronome_cli.results.capacity_result import TrialResult


def search_for(
    context: TrialContext,
    gains: AimdGains,
    method: SearchMethod,
    *,
    soak: bool,
    budget_s: float | None = None,
    into: list[TrialResult],
    note: Callable[[TrialOutcome], None] = lambda outcome: None,
) -> Search:
    """The search of one command; each trial's result is added to `into`."""
    traits, profile = context.backend.traits, context.profile
    budget = TimeBudget(context.began_s, context.period_s, budget_s)
    lives = not traits.sets_age
    context.progress.searching = True
    context.progress.time_limit_s = None if (soak or lives) and budget_s is None else budget.total_s

    def run_trial(plan: TrialPlan) -> TrialOutcome:
        outcome = Trial(context, plan).run(into=into)
        note(outcome)
        return outcome

    grows = profile.policy_spec.grows
    steps = traits.batch == "step" and context.batching == "continuous"
    demand = context.kv_demand()
    memory_limit = demand.total // demand.per_session if demand is not None and demand.per_session else None
    ceiling = max(1, min(context.max_sessions, memory_limit or context.max_sessions))
    return Search(
        run_trial,
        TrialPlans(context.session_length_s, context.period_s, grows=grows, lives=lives, soak=soak),
        latency_limits(context.objectives, context.deadline_ms),
        budget,
        ceiling=context.max_sessions,
        needed=context.batches_to_prove,
        ramp=Ramp(context, gains, ceiling) if method == "ramp" else None,
        ramp_counts=not grows or lives,
        memory_limit=memory_limit,
        whole_s=context.session_length_s if soak or lives else None,
        stepping=Stepping(context.period_s * 1e3, profile.max_batch_size) if steps else None,
        virtual=context.clock == "virtual",
        stop=context.stop,
    )


def latency_limits(objectives: Sequence[Objective], deadline_ms: float) -> list[tuple[float, float]]:
    """Latency in ms and the allowed share of later frames, for each objective that bounds one."""
    limits = []
    for objective in objectives:
        share = tail_share(objective.metric)
        if share is not None:
            limits.append((objective.limit, share))
        elif objective.metric == "misses":
            limits.append((deadline_ms, objective.limit))
    return limits
