"""Where to look for N*: a ramp under AIMD or doubling from one, then a bracket of short looks.

What is found here only says where to confirm (`search.py`). Each look has an engine of its own, since a long-lived
one ages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

from metronome_cli.capacity.aimd import AimdController, AimdGains
from metronome_cli.capacity.budget import Budget
from metronome_cli.capacity.context import TrialContext, batches_to_confirm
from metronome_cli.capacity.offered_load import OfferedLoad
from metronome_cli.capacity.trial import WARM_UP_BATCHES, Trial, TrialOutcome
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.capacity.windows import Windows
from metronome_cli.core.errors import DeviceMemoryError
from metronome_cli.results.capacity_result import LimitingFactor, TrialResult
from metronome_cli.results.measured import Window
from metronome_cli.results.timeline import WindowTimeline

SearchMethod = Literal["ramp", "bisect"]
LOOK_STEPS = 80
HEADROOM = 0.85  # of a latency limit: what a short look may show where a long run is to pass
CONFIRMATIONS_KEPT = 1.5  # that looks leave time for: one that passes, after one that does not
GOLDEN = 0.6180339887498949
RAMP_WINDOWS = 200
RAMP_WINDOW_PERIODS = 6  # of a ramp's window, at the least
RERUNS = 2  # of a point in which the generator stalled
NOT_BY_CHANCE: tuple[LimitingFactor, ...] = ("memory", "context_length", "slots")


@dataclass(slots=True)
class SearchState:
    """Where the search stands. None where nothing is known yet."""

    safe: int | None = None
    first_failing: int | None = None
    binding: LimitingFactor = "none"
    step: int = 1
    undecided: str | None = None  # why there is no answer

    @classmethod
    def of(cls, point: TrialResult) -> Self:
        """What one judged point says by itself."""
        return cls(
            safe=point.sessions if point.verdict == "pass" else None,
            first_failing=point.sessions if point.verdict == "fail" else None,
            binding=point.limited_by,
        )


class Scout:
    """Finds the number of sessions to confirm. `points` and `ramp_timeline` grow as it goes."""

    def __init__(
        self,
        context: TrialContext,
        gains: AimdGains,
        method: SearchMethod,
        *,
        soak: bool,
        confirm_steps: int,
        budget_s: float | None = None,
        note: Callable[[TrialOutcome], None] = lambda outcome: None,
    ) -> None:
        self.context = context
        self.gains = gains
        self.note = note
        self.method: SearchMethod = method
        self.points: list[TrialResult] = []
        self._ramp_windows = WindowTimeline()
        self.memory_limit, self.memory_known = self._memory_limit()
        self.found = SearchState()
        self.slots: int | None = None  # how many sessions the server took when it rejected others
        self._calm: set[int] = set()  # N whose look stayed well within every latency limit
        self._soak = soak
        self._budget = Budget(context.began_s, context.period_s, budget_s)
        context.progress.searching = True
        context.progress.time_limit_s = None if soak and budget_s is None else self._budget.total_s
        self._confirm_steps = batches_to_confirm(context.batches_to_prove, confirm_steps)

    @property
    def ramp_timeline(self) -> list[Window]:
        """The controller's windows so far."""
        return self._ramp_windows.windows

    @property
    def ceiling(self) -> int:
        """No point in looking beyond: seats, or sessions whose caches fit at the session length."""
        most = min(self.context.max_sessions, self.memory_limit)
        return max(1, most if self.slots is None else min(most, self.slots))

    def _scouted(self) -> int | None:
        """The number of sessions to confirm; None when nothing could be seated, or the run was stopped."""
        start = self._ramp() if self.method == "ramp" else self._double()
        if start is None or self.context.stop():
            return None
        self.found.step = max(1, round(0.05 * start))
        return self._with_margin(self._bracket(start))

    def _memory_limit(self) -> tuple[int, bool]:
        demand = self.context.kv_demand()
        if demand is None or not demand.per_session:
            return self.context.max_sessions, False
        return demand.total // demand.per_session, True

    # -- where to look ------------------------------------------------------------------------------------------

    def _ramp(self) -> int | None:
        """The largest number of sessions that the controller held in health."""
        gains = self.gains
        limit_ms = self._limit_ms()
        controller = AimdController(gains, limit_ms)
        with self.context.open_load(self.ceiling) as load:
            windows = Windows(self.context, load, "ramp", f"AIMD, target {gains.target:.0%} of the deadline")
            self._ramp_windows = windows.timeline
            return max(1, self._follow(controller, load, windows, limit_ms))

    def _follow(
        self, controller: AimdController, load: OfferedLoad, windows: Windows, limit_ms: float
    ) -> int:
        """Open and close sessions as the controller says, until it has decreased twice; the largest healthy number."""
        gains = self.gains
        healthy, window_s = 0, max(gains.window_s, RAMP_WINDOW_PERIODS * self.context.period_s)
        for _ in range(RAMP_WINDOWS):
            try:
                room = self._open(load, min(int(controller.cap), self.ceiling))
                windows.session_limit = controller.cap
                load.run_until(load.run.clock.now() + window_s)
            except DeviceMemoryError as error:
                self.context.observer.notice(f"the ramp ends here: {error.message}")
                break
            counts, _ = windows.close()
            open_now = len(load)
            missed = counts.misses > 0 and limit_ms <= self.context.deadline_ms
            decision = controller.update(counts.latency.percentile(gains.quantile), missed, open_now)
            self.context.observer.event(
                "admission",
                {"t_s": load.run.clock.now(), "session_limit": decision.cap, "action": decision.action},
            )
            if self.context.stop():
                break
            if decision.action == "decrease":
                load.close_newest(open_now - int(controller.cap))
            else:
                healthy = max(healthy, open_now)
            if controller.decreases >= 2 or not room or open_now >= self.ceiling or open_now == 0:
                break
        return healthy

    def _limit_ms(self) -> float:
        """The tightest latency that an objective asks for; the deadline where none does."""
        return min(
            (o.limit for o in self.context.objectives if o.unit == "ms"), default=self.context.deadline_ms
        )

    def _open(self, load: OfferedLoad, wanted: int) -> bool:
        """Open sessions up to `wanted`, each at an age of its own; False if the backend has no more room."""
        room = True
        while len(load) < wanted and room:
            room = load.open((len(load) * GOLDEN % 1.0) * self.context.session_length_s)
        if not load.begun:
            load.begin()
        load.wait_ready()
        if load.recorder.ended["rejected"] or load.recorder.ended["queue_timeout"]:
            self._learn_slots(max(1, len(load)))
            return False
        return room

    def _learn_slots(self, slots: int | None) -> None:
        """That many sessions were ready when the server rejected others."""
        if slots is not None:
            self.slots = slots if self.slots is None else max(self.slots, slots)

    def _double(self) -> int | None:
        """`--search-method bisect`: double from one session until a look fails; the last good one."""
        good, count = 0, 1
        while not self.context.stop():
            if not self._look(count):
                break
            good = count
            if count >= self.ceiling:
                break
            count = min(2 * count, self.ceiling)
        return max(1, good)

    def _bracket(self, start: int) -> int:
        """The largest promising N: strides up from `start`, then halves between good and bad, while there is time."""
        step, good, bad = self.found.step, start, self.ceiling + 1
        stride = step
        while good + stride < bad and self._goes_on():
            if self._look(good + stride):
                good += stride
                stride *= 2
            else:
                bad = good + stride
        if bad > self.ceiling and good < self.ceiling and self._goes_on():
            if self._look(self.ceiling):
                return self.ceiling
            bad = self.ceiling
        while bad - good > step and self._goes_on():
            middle = (good + bad) // 2
            if self._look(middle):
                good = middle
            else:
                bad = middle
        return good

    def _goes_on(self) -> bool:
        """Whether there is time for one more look before what is found must be confirmed."""
        return not self.context.stop() and self._budget.affords(looks=1, confirmations=CONFIRMATIONS_KEPT)

    def _with_margin(self, candidate: int) -> int:
        """Below where latency begins to fail, since a long run there seldom passes; memory has a sharp edge.

        The largest N whose look stayed well within the limits, where there was one not far below; else a step down.
        """
        if candidate >= self.ceiling or self.found.binding in NOT_BY_CHANCE or self._grows:
            return candidate
        below = max(1, candidate - self.found.step)
        calm = max((n for n in self._calm if n <= candidate), default=below)
        return calm if below // 2 <= calm < below else below

    def _look(self, sessions: int) -> bool:
        """Whether one N is promising. If a screening trial fails a second one decides: a busy moment is not the load.

        An N that failed in both is one that was seen to fail.
        """
        if sessions > self.ceiling:
            return False
        promising, point = self._glance(sessions)
        if point.verdict == "fail" and point.limited_by not in NOT_BY_CHANCE and not self.context.stop():
            promising, point = self._glance(sessions)
        self._note_failure(point)
        return promising

    def _glance(self, sessions: int) -> tuple[bool, TrialResult]:
        """A screening trial, and whether it shows nothing against so many sessions."""
        if not self._sets_age:
            plan = TrialPlan(sessions, "screen", ages="start", max_batches=LOOK_STEPS, screening=True)
        elif self._grows:
            length_s = self._last_s(LOOK_STEPS)
            plan = TrialPlan(sessions, "screen", ages="end", length_s=length_s, screening=True)
        else:
            plan = TrialPlan(sessions, "screen", max_batches=LOOK_STEPS, screening=True)
        with self._budget.looking():
            outcome = self._measure(plan)
        self._note_look(outcome.within_limits, outcome.result)
        return outcome.within_limits, outcome.result

    def _note_look(self, promising: bool, point: TrialResult) -> None:
        if promising and point.batches:
            self._budget.expect(self.context.batches_to_prove / point.batches)
        if promising and worst_latency_share(point) < HEADROOM:
            self._calm.add(point.sessions)

    def _note_failure(self, point: TrialResult) -> None:
        found = self.found
        if point.verdict == "fail" and point.sessions < (
            found.first_failing or self.context.max_sessions + 1
        ):
            found.first_failing, found.binding = point.sessions, point.limited_by

    # -- one point ----------------------------------------------------------------------------------------------

    def _last_s(self, steps: int) -> float:
        """The last stretch of a session's life that surely has that many steps, one a period at the least."""
        return min(
            self.context.session_length_s, (1.05 * steps + 2 * WARM_UP_BATCHES) * self.context.period_s
        )

    @property
    def _grows(self) -> bool:
        return self.context.profile.policy_spec.grows

    @property
    def _sets_age(self) -> bool:
        return self.context.backend.traits.sets_age

    def _run(self, plan: TrialPlan) -> TrialResult:
        return self._measure(plan).result

    def _measure(self, plan: TrialPlan, reruns: int = RERUNS) -> TrialOutcome:
        """One trial; again if the load generator stalled, since that says nothing of so many sessions."""
        outcome = Trial(self.context, plan).run(into=self.points)
        self._learn_slots(outcome.slots)
        self.note(outcome)
        if self._soak or not outcome.stalled or self.context.stop() or not reruns:
            return outcome
        return self._measure(plan, reruns - 1)


def worst_latency_share(point: TrialResult) -> float:
    """The largest share of a latency objective's limit that its percentile took; 0 where none is on latency."""
    shares = (o.measured / o.limit for o in point.objectives if o.unit == "ms" and o.measured is not None)
    return max(shares, default=0.0)
