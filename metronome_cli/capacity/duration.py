"""Estimated duration of the phases of a capacity run, for `--dry-run`, before anything is loaded.

Durations are on the trial clock. While deadlines are met, a step takes at most one period, so a phase of k steps takes
at most k periods: that long on a real clock, only the compute time on a virtual one. Most phases end as soon as their
verdict is known, and later phases depend on earlier results, so durations are bounds: `most_s` includes the longest
ramp, the search time limit, a confirmation and the screening trials after it. Known error: a step of an overloaded
engine takes longer than a period, until the trial ends.

A search has a limit of wall time (capacity/time_budget.py). A trial that would not end within it is not started, so
`usual_s` is the limit, or one confirmation if that is longer. A long ramp, one confirmation if none was run, and
screening trials above the confirmed number if none has failed may exceed it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.context import batches_to_confirm, batches_to_prove
from metronome_cli.capacity.next_trial import LOOK_BATCHES, LOOK_S
from metronome_cli.capacity.plan import DEFAULT_ARRIVALS_PER_S, DEFAULT_OFFERED, CapacityPlan
from metronome_cli.capacity.policy_comparison import GUARDED, default_variants
from metronome_cli.capacity.ramp import RAMP_WINDOW_PERIODS, RAMP_WINDOWS
from metronome_cli.capacity.search import LAST_CONFIRMATIONS, LAST_LOOKS
from metronome_cli.capacity.time_budget import TimeBudget
from metronome_cli.capacity.trial import WARM_UP_BATCHES
from metronome_cli.core.formatting import plural
from metronome_cli.core.quantities import format_duration
from metronome_cli.load.arrivals import ramp
from metronome_cli.load.trace_file import LoadTrace


@dataclass(frozen=True, slots=True)
class RunPhase:
    """One phase of the run, in s on the trial clock; 0 if it may be skipped."""

    what: str
    least_s: float
    most_s: float


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    """Phases of a run. `budget_s` and `usual_s` are wall time, and None without a search."""

    does: str
    clock: str
    phases: tuple[RunPhase, ...]
    budget_s: float | None = None
    usual_s: float | None = None
    loads: bool = True  # a model first; its loading time is not included

    @property
    def least_s(self) -> float:
        return sum(phase.least_s for phase in self.phases)

    @property
    def most_s(self) -> float:
        return sum(phase.most_s for phase in self.phases)

    def as_dict(self) -> dict[str, object]:
        """Seconds."""
        return {
            "least_s": self.least_s,
            "usual_s": self.usual_s,
            "budget_s": self.budget_s,
            "most_s": self.most_s,
            "of": f"the {self.clock} clock",
        }

    def rows(self) -> Iterator[tuple[str, str]]:
        """Return the estimate as text."""
        for phase in self.phases:
            yield phase.what, _span(phase.least_s, phase.most_s)
        if self.budget_s is not None:
            yield "budget", f"{format_duration(self.budget_s)} for the search (--search-time)"
        yield "duration", self._duration()

    def _duration(self) -> str:
        loading = ", and loading" if self.loads else ""
        usual = None if self.usual_s is None else f"about {_rounded(self.usual_s)} of real time{loading}"
        bounds = _span(self.least_s, self.most_s)
        if self.clock != "real":
            virtual = f"{bounds} of virtual time, in which waiting takes no real time"
            return f"{virtual}: only the compute takes real time" if usual is None else f"{usual}; {virtual}"
        if usual is None:
            return f"{bounds} of real time{loading}"
        return f"{usual}; {_rounded(self.most_s)} if each phase takes its longest"


def estimate_duration(
    plan: CapacityPlan, recorded: LoadTrace | None, *, server: bool = False
) -> DurationEstimate:
    """Estimate a plan. `server`: over the network, where a confirmation lasts the session length."""
    if recorded is not None:
        return _replay(plan, recorded, server)
    length = format_duration(plan.length_s)
    if plan.compare or plan.guard:
        return _policy_runs(plan)
    if plan.trials is not None and plan.sessions is not None:
        count = 2 * plan.trials if plan.profile.policy_spec.grows else plan.trials
        trials, sessions = plural(plan.trials, "trial"), plural(plan.sessions, "session")
        whole = RunPhase(
            "1 session length" if count == 1 else f"{count:,} session lengths", 0.0, count * plan.length_s
        )
        return DurationEstimate(
            f"{trials} of {sessions} for {length} under each policy", plan.clock, (whole,)
        )
    if plan.sessions is not None:
        does = f"judges {plural(plan.sessions, 'session')} for {length}"
        return DurationEstimate(does, plan.clock, _single(plan, server), loads=not server)
    return _search(plan, server)


def _replay(plan: CapacityPlan, recorded: LoadTrace, server: bool) -> DurationEstimate:
    """Estimate a replay. Trials last as long as the recorded ones; policy runs at most as long as those could."""
    variants = plan.compare or plan.guard
    lengths = [(run.head.length_s or run.end_s) if variants else run.end_s for run in recorded.runs]
    if variants:
        count = len(_policy_runs(plan).phases)
        does = f"offers the sessions of {recorded.path} to {plural(count, 'policy variant')}"
        return DurationEstimate(does, plan.clock, (RunPhase("policy runs", 0.0, count * max(lengths)),))
    numbers = {run.head.sessions for run in recorded.runs}
    span = f"{min(numbers)} to {plural(max(numbers), 'session')}"
    span = plural(min(numbers), "session") if len(numbers) == 1 else span
    runs = RunPhase(plural(len(lengths), "recorded run"), 0.0, sum(lengths))
    return DurationEstimate(
        f"replays the load of {recorded.path}, of {span}", plan.clock, (runs,), loads=not server
    )


def _policy_runs(plan: CapacityPlan) -> DurationEstimate:
    count = plan.offered or DEFAULT_OFFERED
    rate = plan.arrival_rate_per_s or DEFAULT_ARRIVALS_PER_S
    variants = (GUARDED,) if plan.guard and not plan.compare else default_variants(plan.bounded_policy())
    last_s = max(arrival.start_s for arrival in ramp(count, rate))
    does = f"offers {plural(count, 'session')} at {rate:g}/s to {plural(len(variants), 'policy variant')}"
    return DurationEstimate(
        does,
        plan.clock,
        tuple(RunPhase(variant.name, last_s, plan.length_s + count / rate) for variant in variants),
    )


def _single(plan: CapacityPlan, server: bool) -> tuple[RunPhase, ...]:
    if server or plan.soak or plan.profile.policy_spec.grows:
        return (RunPhase("whole session length", 0.0, plan.length_s),)
    judged_s = (_confirm_steps(plan) + WARM_UP_BATCHES) * plan.profile.frame.period_s
    return RunPhase("confirmation", 0.0, judged_s), RunPhase("memory trial", 0.0, _old_s(plan))


def _search(plan: CapacityPlan, server: bool) -> DurationEstimate:
    period_s = plan.profile.frame.period_s
    budget_s = TimeBudget(0.0, period_s, plan.budget_s).total_s
    most = max(2, min(plan.max_sessions, plan.profile.max_batch_size * 16))
    look_s, one_s = max(LOOK_S, (LOOK_BATCHES + WARM_UP_BATCHES) * period_s), _confirm_s(plan, server)
    gains = plan.gains or AimdGains()
    window_s = max(gains.window_s, RAMP_WINDOW_PERIODS * period_s)
    first = (
        RunPhase("ramp", window_s, RAMP_WINDOWS * window_s)
        if plan.method == "ramp"
        else RunPhase("doubling", look_s, math.ceil(math.log2(most)) * look_s)
    )
    phases = (
        first,
        RunPhase("trials", 0.0, budget_s),
        RunPhase("confirmation", 0.0, LAST_CONFIRMATIONS * one_s),
        RunPhase("screening above", 0.0, LAST_LOOKS * look_s),
    )
    whole_s = one_s if plan.clock == "real" and (server or plan.soak) else 0.0
    does = f"searches for the number of sessions that pass for {format_duration(plan.length_s)}, by {plan.method}"
    return DurationEstimate(
        does, plan.clock, phases, budget_s, max(budget_s, window_s + whole_s), loads=not server
    )


def _confirm_s(plan: CapacityPlan, server: bool) -> float:
    period_s, length_s = plan.profile.frame.period_s, plan.length_s
    if server or plan.soak:
        return length_s
    if plan.profile.policy_spec.grows:
        steps = 1.05 * batches_to_prove(plan.judged_by(), plan.profile) + 2 * WARM_UP_BATCHES
        return min(length_s, steps * period_s)
    return (_confirm_steps(plan) + WARM_UP_BATCHES) * period_s + _old_s(plan)


def _confirm_steps(plan: CapacityPlan) -> int:
    needed = batches_to_prove(plan.judged_by(), plan.profile)
    return batches_to_confirm(needed, plan.confirm_steps)


def _old_s(plan: CapacityPlan) -> float:
    return min(plan.length_s, 2 * WARM_UP_BATCHES * plan.profile.frame.period_s)


def _span(least_s: float, most_s: float) -> str:
    most = _rounded(most_s)
    return f"up to {most}" if least_s <= 0.0 else f"{_rounded(least_s)} to {most}"


def _rounded(seconds: float) -> str:
    return format_duration(round(seconds, 1))
