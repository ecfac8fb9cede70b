"""Result of a `capacity` run so far: its verdict, the deciding trial, and the capacity of its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.by_delay import by_delay
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.capacity.replay import TraceReplay
from metronome_cli.capacity.search import Search, SearchState
from metronome_cli.capacity.search_setup import latency_limits
from metronome_cli.core.errors import Status, Verdict
from metronome_cli.results.capacity_result import Capacity, TrialResult
from metronome_cli.results.cycles_result import Cycles
from metronome_cli.results.measured import ObjectiveResult
from metronome_cli.results.policy_runs import PolicyRun, RepeatSeries


@dataclass(frozen=True, slots=True)
class Conclusion:
    """Evidence measured so far. The result is that of the search or replay, else of the last trial."""

    plan: CapacityPlan
    status: Status
    points: Sequence[TrialResult]
    policy_runs: Sequence[PolicyRun] = ()
    trials: Sequence[RepeatSeries] = ()
    search: Search | None = None
    replay: TraceReplay | None = None
    cycles: Cycles | None = None

    @property
    def found(self) -> SearchState:
        if self.search is not None:
            return self.search.found
        if self.replay is not None:
            return self.replay.found
        return SearchState.of(self.points[-1]) if self.points else SearchState()

    @property
    def verdict(self) -> Verdict | None:
        """Verdict; None if the run only counts, or has nothing to judge yet."""
        found, whole = self.found, self.status == "complete"
        if not self.plan.judges:
            return self._verdict_of_policy_runs()
        if not self.points:
            return "inconclusive" if self.search is not None or not whole else None
        if self.replay is not None:
            return self.replay.verdict if whole else "inconclusive"
        if self.plan.sessions is not None:
            return self.points[-1].verdict
        if found.safe is not None and found.undecided is None:
            return "inconclusive" if self.status == "failed" else "pass"
        if found.safe is None and found.first_failing == 1:
            return "fail"
        return "inconclusive"

    def _verdict_of_policy_runs(self) -> Verdict | None:
        """A guarded run must lose no session and meet the objectives; comparisons and repeats have no verdict."""
        if self.status != "complete" or not (self.policy_runs or self.trials):
            return "inconclusive"
        if self.plan.compare or self.trials:
            return None
        run = self.policy_runs[0]
        if run.collapsed or (run.sessions_lost and not run.load_generator_late):
            return "fail"
        verdicts = {result.verdict for result in run.objectives}
        return "fail" if "fail" in verdicts else "pass" if verdicts == {"pass"} else "inconclusive"

    @property
    def decisive(self) -> TrialResult | None:
        """The trial that decides the result: the confirmation at N*, or the last one judged."""
        found = self.found
        if confirmed := [
            p for p in self._judged(found.safe, "pass") if p.purpose not in ("screen", "memory")
        ]:
            return confirmed[0]
        if self.replay is not None and (refuted := self._judged(found.first_failing, "fail")):
            return refuted[0]
        measured = [point for point in self.points if point.batches] or self.points
        return measured[-1] if measured else None

    def _judged(self, sessions: int | None, verdict: Verdict) -> list[TrialResult]:
        return [p for p in self.points if p.sessions == sessions and p.verdict == verdict]

    @property
    def objectives(self) -> list[ObjectiveResult]:
        """Results of the deciding trial, or of the guarded policy run; inconclusive if there is neither.

        Empty for comparisons and repeats, which only count.
        """
        if self.plan.compare or self.plan.trials:
            return []
        if self.plan.guard and self.policy_runs:
            return list(self.policy_runs[0].objectives)
        if (decisive := self.decisive) is not None:
            return list(decisive.objectives)
        return [
            ObjectiveResult(
                objective=str(o), verdict="inconclusive", limit=o.limit, unit=o.unit, reason="not measured"
            )
            for o in self.plan.judged_by()
        ]

    @property
    def capacity(self) -> Capacity | None:
        """Capacity; None for comparisons and repeats."""
        if not self.plan.judges:
            return None
        found, search = self.found, self.search
        return Capacity(
            safe_sessions=found.safe,
            lowest_failing_sessions=found.first_failing,
            estimate=search.estimate(self._estimated) if search else None,
            limited_by=found.binding,
            session_length_s=self.plan.length_s,
            inconclusive_reason=found.undecided,
            method=self._method,
            slowest_stage=self._slowest_stage(found),
            by_delay=by_delay(self.plan.playback_delays_s, self.points),
            cycles=self.cycles,
            memory_ceiling_sessions=search.memory_limit if search else None,
            controller=(self.plan.gains or AimdGains()).as_dict() if search else {},
            ramp_windows=search.ramp.windows if search and search.ramp else [],
            trials=list(self.points),
        )

    @property
    def _estimated(self) -> str:
        """Return the latency objectives of an estimate."""
        return ", ".join(str(o) for o in self.plan.judged_by() if latency_limits([o], 1.0))

    @property
    def _method(self) -> str:
        if self.replay is not None:
            return self.replay.method
        return "single" if self.plan.sessions is not None else self.plan.method

    def _slowest_stage(self, found: SearchState) -> str | None:
        """The stage with the largest share of step time, if the deadline is the limiting factor."""
        failing = [p for p in self.points if p.sessions == found.first_failing and p.stages_ms]
        if found.binding != "deadline" or not failing:
            return None
        stages = failing[-1].stages_ms
        return max(stages, key=lambda stage: stages[stage])
