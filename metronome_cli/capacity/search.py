"""Finds N*: pools what every trial shows, and runs the trial that narrows the answer most.

Two kinds of result. The estimate, with its interval, comes from all trials (estimate.py). A safe and a failing number
are claims of exact tests at one N: a confirmation passed, a trial failed. The estimate must not contradict them, and a
machine that was disturbed while it was measured allows none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from metronome_cli.capacity.estimate import Estimator, Interval
from metronome_cli.capacity.next_trial import CLOSE, NextTrial, TrialChooser, Tried
from metronome_cli.capacity.queue_model import Stepping
from metronome_cli.capacity.samples import MeasuredBatch, Samples
from metronome_cli.capacity.time_budget import TimeBudget
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.core.formatting import plural
from metronome_cli.results.capacity_estimate import CapacityEstimate, LateShare, SessionInterval
from metronome_cli.results.capacity_result import LimitingFactor, TrialResult
from metronome_cli.results.measured import Window

SURE_SAFE, SURE_FAILING = 0.9, 0.05  # chance that N holds: least for a safe number, most for a failing one
WITHHELD_S = 0.5  # of disturbed batches, from which nothing is claimed
REPEATS = 2  # of a trial in which the load generator stalled
LAST_CONFIRMATIONS, LAST_LOOKS = 2, 2  # most that are run once the time is spent
FALL = 0.7  # of the estimate: what is confirmed if the interval is wide
UNTIMED_PACE = 0.1  # seconds per second of a virtual clock, until a trial shows it
LEAST_TIMED_S = 1.0  # shortest trial from which the pace of a virtual clock is taken
RESERVE_S = 1.5  # for what a trial takes beside its length
METHOD = "all trials together, bootstrap over trials"
HARD: tuple[LimitingFactor, ...] = ("memory", "context_length", "slots")  # limits that do not come by chance


class TrialEvidence(Protocol):
    """The batches of a trial, warm-up left out."""

    @property
    def batches(self) -> Sequence[MeasuredBatch]: ...


class Outcome(Protocol):
    """What a trial returns. `stalled`: the load generator was late, so it is to be repeated."""

    @property
    def result(self) -> TrialResult: ...
    @property
    def evidence(self) -> TrialEvidence: ...
    @property
    def stalled(self) -> bool: ...
    @property
    def slots(self) -> int | None: ...


@dataclass(slots=True)
class SearchState:
    """State of the search. A field is None until it is known."""

    safe: int | None = None
    first_failing: int | None = None
    binding: LimitingFactor = "none"
    undecided: str | None = None  # why there is no answer
    estimate: Interval | None = None
    undisturbed: Interval | None = None  # without disturbances; None if there were none
    interference: float | None = (
        None  # share of late frames that does not depend on N; None if it was not told apart
    )
    disturbed_s: float = 0.0
    measured_s: float = 0.0

    @classmethod
    def of(cls, result: TrialResult) -> SearchState:
        """Return the state after a single judged trial."""
        return cls(
            safe=result.sessions if result.verdict == "pass" else None,
            first_failing=result.sessions if result.verdict == "fail" else None,
            binding=result.limited_by,
        )


class Plans(Protocol):
    """Plans of the trials (trial_plan.py)."""

    def look(self, sessions: int, length_s: float) -> TrialPlan: ...
    def confirm(self, sessions: int, length_s: float, batches: int) -> TrialPlan: ...
    def memory(self, sessions: int) -> TrialPlan | None: ...


@dataclass(slots=True)
class _Tried:
    """Trials of one N that were judged."""

    passed: bool = False
    failed: bool = False
    hard: LimitingFactor | None = None
    binding: LimitingFactor = "none"
    confirmations: int = 0


class FirstStage(Protocol):
    """A ramp (ramp.py): the largest healthy number, the slots of a full server, and what each window showed."""

    def run(self) -> None: ...
    @property
    def healthy(self) -> int: ...
    @property
    def slots(self) -> int | None: ...
    @property
    def samples(self) -> Sequence[Samples]: ...
    @property
    def windows(self) -> list[Window]: ...


class Search:
    """One search. Its first stage is a `ramp`, or without one trials that double; `ramp_counts`: it is evidence.

    `limits`: latency in ms and allowed share of later frames, for each objective on latency. `ceiling`: no more
    sessions are tried. `memory_limit`: sessions whose caches fit the pool; None if it is not known. `whole_s`: how
    long a confirmation takes; None: as long as a proof needs. `stepping`: of an engine whose steps are the batches.
    `virtual`: the trials' clock is not the budget's.
    """

    def __init__(
        self,
        run_trial: Callable[[TrialPlan], Outcome],
        plans: Plans,
        limits: Sequence[tuple[float, float]],
        budget: TimeBudget,
        *,
        ceiling: int,
        needed: int,
        ramp: FirstStage | None = None,
        ramp_counts: bool = True,
        memory_limit: int | None = None,
        whole_s: float | None = None,
        stepping: Stepping | None = None,
        virtual: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.found = SearchState()
        self.ceiling = ceiling if memory_limit is None else max(1, min(ceiling, memory_limit))
        self.evidence = Estimator(limits, self.ceiling, stepping)
        self.memory_limit = memory_limit
        self.ramp, self.slots = ramp, None if ramp is None else ramp.slots
        self._run_trial, self._plans, self._budget, self._stop = run_trial, plans, budget, stop
        self._ramp_counts, self._needed = ramp_counts, needed
        self._chooser = TrialChooser(self.evidence, needed, whole_s)
        self._tried: dict[int, _Tried] = {}
        self._virtual, self._took_s, self._clock_s = virtual, 0.0, 0.0

    def run(self) -> SearchState:
        """Run trials until the answer is narrow, or the time is spent."""
        if self.ramp is None:
            self._double()
        else:
            self._run_ramp(self.ramp)
        while not self._stop() and (chosen := self._choose()) is not None:
            self.run_next(chosen)
        self._confirm_at_least_one()
        self._look_above()
        self._show_the_edge()
        return self._finished()

    def _run_ramp(self, ramp: FirstStage) -> None:
        ramp.run()
        self._learn_slots(ramp.slots)
        for samples in ramp.samples if self._ramp_counts else ():
            self.evidence.add(samples)
        if self.evidence.trials:
            self._update()
        elif not self._stop():
            self.run_next(self._chooser.look(max(1, min(ramp.healthy, self.ceiling))))

    def _double(self) -> None:
        """Look at 1, 2, 4 and so on until one fails."""
        sessions = 1
        while not self._stop() and not self.run_next(self._chooser.look(sessions)) and sessions < self._most:
            sessions = min(2 * sessions, self._most)

    @property
    def _most(self) -> int:
        return self.ceiling if self.slots is None else min(self.ceiling, self.slots)

    def _learn_slots(self, slots: int | None) -> None:
        """That many sessions were ready when the server rejected others."""
        if slots is not None:
            self.slots = slots if self.slots is None else max(self.slots, slots)

    def _choose(self) -> NextTrial | None:
        if not self.evidence.trials:
            return None
        if halved := self._between_hard_limits():
            return halved
        done = {
            n for n, tried in self._tried.items() if tried.confirmations and (tried.passed or tried.failed)
        }
        done |= {n for n, tried in self._tried.items() if tried.confirmations > 1}
        failing = min(filter(None, (self.found.first_failing, self._least_hard)), default=None)
        tried = Tried(done, set(self._tried), any(one.confirmations for one in self._tried.values()))
        return self._chooser.choose(self.found.safe, failing, tried, self._left_s)

    def _between_hard_limits(self) -> NextTrial | None:
        """Halve what memory leaves open: unlike latency, numbers that fit say nothing of larger ones that do not."""
        hard = min(
            (n for n, tried in self._tried.items() if tried.hard and tried.hard != "slots"), default=None
        )
        if hard is None:
            return None
        held = max((n for n, tried in self._tried.items() if tried.passed), default=0)
        middle = (held + hard) // 2
        near = hard <= max(held + 1, CLOSE * held)
        if near or middle in self._tried or middle < 1 or self.evidence.chance(middle) < SURE_SAFE:
            return None
        trial = self._chooser.confirm(middle, self._left_s)
        return trial if self._left_s > 0 else None

    @property
    def _least_hard(self) -> int | None:
        """The smallest number that fails for another reason than chance."""
        hard = [n for n, tried in self._tried.items() if tried.hard]
        return min([*hard, *([] if self.slots is None else [self.slots + 1])], default=None)

    # -- one trial ----------------------------------------------------------------------------------------------

    def run_next(self, chosen: NextTrial) -> bool:
        """Run a trial, add its evidence, and return True if it failed."""
        left_s = self._budget.left_s
        if chosen.kind == "look":
            plan = self._plans.look(chosen.sessions, chosen.length_s)
        else:
            batches = max(self._needed, self._chooser.batches(chosen))
            plan = self._plans.confirm(chosen.sessions, chosen.length_s, batches)
        outcome = self._measure(plan)
        result, tried = outcome.result, self._tried.setdefault(chosen.sessions, _Tried())
        samples = Samples.of(chosen.sessions, outcome.evidence.batches, self._budget.total_s - left_s)
        self.evidence.add(samples)
        self._time(left_s - self._budget.left_s, result.duration_s)
        self._note(tried, result)
        if chosen.kind == "confirm":
            tried.confirmations += 1
            tried.passed |= result.verdict == "pass" and self._fits(chosen.sessions, tried)
        self._update()
        return result.verdict == "fail"

    def _time(self, took_s: float, clock_s: float) -> None:
        """How long trials take beside their length; on a virtual clock, how long a second of it takes."""
        if self._virtual and clock_s < LEAST_TIMED_S:
            return  # a trial that fails at once takes its set-up's time, not its pace
        if self._virtual:
            self._took_s, self._clock_s = self._took_s + took_s, self._clock_s + clock_s
        else:
            self._chooser.setup_s = max(0.1, 0.5 * (self._chooser.setup_s + took_s - clock_s))

    @property
    def _left_s(self) -> float:
        """Of the trials' clock, until the time is spent."""
        pace = self._took_s / self._clock_s if self._clock_s else UNTIMED_PACE if self._virtual else 1.0
        return (self._budget.left_s - RESERVE_S) / max(0.01, pace)

    def _measure(self, plan: TrialPlan) -> Outcome:
        """One trial; again if the load generator stalled."""
        outcome = self._run_trial(plan)
        for _ in range(REPEATS):
            if not outcome.stalled or self._stop():
                break
            outcome = self._run_trial(plan)
        self._learn_slots(outcome.slots)
        return outcome

    def _note(self, tried: _Tried, result: TrialResult) -> None:
        if result.verdict == "fail":
            tried.failed, tried.binding = True, result.limited_by
            if result.limited_by in HARD:
                tried.hard = result.limited_by

    def _fits(self, sessions: int, tried: _Tried) -> bool:
        """Return True if every session's cache fits until its end."""
        plan = self._plans.memory(sessions)
        if plan is None or self._stop():
            return plan is None
        result = self._measure(plan).result
        self._note(tried, result)
        return result.verdict == "pass"

    # -- conclusions --------------------------------------------------------------------------------------------

    def _update(self) -> None:
        """Estimate anew, and keep the claims that the evidence carries."""
        evidence, found = self.evidence, self.found
        evidence.update()
        found.estimate, found.disturbed_s = self._within_hard_limits(evidence.interval), evidence.disturbed_s
        found.measured_s = sum(one.duration_s for one in evidence.trials)
        withheld = found.disturbed_s >= WITHHELD_S
        passed = [n for n, tried in self._tried.items() if tried.passed and evidence.chance(n) >= SURE_SAFE]
        found.safe = None if withheld else max(passed, default=None)
        failed = [
            n
            for n, tried in self._tried.items()
            if n > (found.safe or 0)
            and (tried.hard or (tried.failed and not withheld and evidence.chance(n) <= SURE_FAILING))
        ]
        found.first_failing = min(failed, default=None)
        if found.first_failing is not None:
            found.binding = self._tried[found.first_failing].binding

    def _within_hard_limits(self, interval: Interval) -> Interval:
        """The estimate is of latency alone; memory, the context and slots can allow fewer."""
        hard = self._least_hard
        if hard is None:
            return interval
        return Interval(*(min(n, hard - 1) for n in (interval.sessions, interval.low, interval.high)))

    def _confirm_at_least_one(self) -> None:
        """Confirm what probably holds if no confirmation fitted into the time."""
        if not self.evidence.trials:
            return
        interval = self.evidence.interval
        sessions = max(interval.low, round(FALL * interval.sessions))
        if interval.sessions == 0 and self.evidence.undisturbed.sessions <= 1:
            sessions = 1  # the load alone breaks the objective, which one session shows
        for _ in range(LAST_CONFIRMATIONS):
            if self._stop() or sessions < 1 or any(tried.confirmations for tried in self._tried.values()):
                return
            self.run_next(self._chooser.confirm(sessions, self._left_s))

    def _look_above(self) -> None:
        """Run a screening trial above the estimate if no number has failed."""
        sessions = self.evidence.interval.high if self.evidence.trials else 0
        for _ in range(LAST_LOOKS):
            if (
                self._stop()
                or self.found.first_failing
                or not self.found.safe
                or self.found.safe >= self._most
            ):
                return
            sessions = min(self._most, max(sessions + 1, round(1.06 * sessions)))
            self.run_next(self._chooser.look(sessions))

    def _show_the_edge(self) -> None:
        """One session more than memory holds; the number of slots is taken as it is."""
        found = self.found
        if found.safe is None or found.safe < self._most or self._stop():
            return
        if self.slots == found.safe:
            if found.first_failing != found.safe + 1:
                self.run_next(self._chooser.look(found.safe + 1))
            return
        if found.first_failing:
            return
        if self.memory_limit is None or self.ceiling < self.memory_limit:
            found.binding = "slots"
            return
        found.binding, above = "memory", self.ceiling + 1
        plan = self._plans.memory(above) or self._plans.confirm(
            above, self._chooser.look(above).length_s, self._needed
        )
        result = self._measure(plan).result
        if result.verdict == "fail":
            found.first_failing, found.binding = above, result.limited_by
        else:
            found.undecided = (
                f"memory was expected to hold {self.ceiling:,} sessions, but {above:,} did not fail"
            )

    def _finished(self) -> SearchState:
        found = self.found
        if self.evidence.trials:
            found.undisturbed, found.interference = self._interference()
        if self._stop():
            found.undecided = found.undecided or "interrupted"
        elif found.safe is None and found.undecided is None:
            found.undecided = self._why_none()
        elif found.first_failing is None and found.binding == "none":
            found.undecided = found.undecided or "no larger number was seen to fail in the time given"
        return found

    def estimate(self, objective: str) -> CapacityEstimate | None:
        """For the report; None without a trial."""
        found, evidence = self.found, self.evidence
        if found.estimate is None:
            return None
        calm = found.undisturbed
        return CapacityEstimate(
            **asdict(found.estimate),
            method=METHOD,
            objective=objective,
            late_share_limit=evidence.limits[0][1],
            undisturbed=None if calm is None else SessionInterval(**asdict(calm)),
            interference_share=found.interference,
            disturbed_s=found.disturbed_s,
            measured_s=found.measured_s,
            late_shares=[
                LateShare(sessions=n, expected=expected, low=low, high=high)
                for n, expected, low, high in evidence.curve()
            ],
        )

    def _interference(self) -> tuple[Interval | None, float | None]:
        """N* undisturbed and the share of frames that are late at any N, if that breaks the objective by itself."""
        evidence = self.evidence
        calm = evidence.undisturbed
        if evidence.interval.sessions == 0 and calm.sessions > 1:
            late = evidence.late_share(self._fewest)
            return calm, late if late > evidence.limits[0][1] else None
        return (calm, None) if evidence.disturbed_s >= WITHHELD_S else (None, None)

    @property
    def _fewest(self) -> int:
        """The smallest number of sessions that was tried."""
        return min(self._tried, default=1)

    def _why_none(self) -> str | None:
        found = self.found
        if found.disturbed_s >= WITHHELD_S:
            return (
                f"the machine was slower for another reason than the sessions in {found.disturbed_s:.0f} "
                f"of {found.measured_s:.0f} s"
            )
        if found.interference is not None:
            return (
                "no number of sessions holds on this machine as it is: "
                f"{found.interference:.1%} of frames are late with {plural(self._fewest, 'session')}"
            )
        if passed := [n for n, tried in self._tried.items() if tried.passed]:
            return f"{plural(max(passed), 'session')} passed, but all trials together do not bear it out"
        return None if found.first_failing == 1 else "no number was confirmed in the time given"
