"""Where to look for N*: a ramp under AIMD or doubling from one, then a bracket of short looks.

What is found here only says where to confirm (`search.py`). Each look has an engine of its own, since a long-lived
one ages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from metronome_cli.backends.drives import Drives
from metronome_cli.capacity.aimd import AimdController, AimdGains
from metronome_cli.capacity.budget import Budget
from metronome_cli.capacity.lab import Lab, batches_to_confirm
from metronome_cli.capacity.point import WARM_UP_STEPS, PointPlan, PointRun
from metronome_cli.capacity.windows import WindowReporter
from metronome_cli.core.errors import DeviceMemoryError
from metronome_cli.core.types import SessionRefused
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
        lab: Lab,
        gains: AimdGains,
        method: SearchMethod,
        *,
        soak: bool,
        confirm_steps: int,
        budget_s: float | None = None,
    ) -> None:
        self.lab = lab
        self.gains = gains
        self.method: SearchMethod = method
        self.points: list[TrialResult] = []
        self._ramp_windows = WindowTimeline()
        self.memory_limit, self.memory_known = self._memory_limit()
        self.found = SearchState()
        self._calm: set[int] = set()  # N whose look stayed well within every latency limit
        self._soak = soak
        self._budget = Budget(lab.began_s, lab.period_s, budget_s)
        lab.searching = True
        lab.budget_s = None if soak and budget_s is None else self._budget.total_s
        self._confirm_steps = batches_to_confirm(lab.steps_needed, confirm_steps)

    @property
    def ramp_timeline(self) -> list[Window]:
        """The controller's windows so far."""
        return self._ramp_windows.windows

    @property
    def ceiling(self) -> int:
        """No point in looking beyond: seats, or sessions whose caches fit at the session length."""
        return max(1, min(self.lab.max_sessions, self.memory_limit))

    def _scouted(self) -> int | None:
        """The number of sessions to confirm; None when nothing could be seated, or the run was stopped."""
        start = self._ramp() if self.method == "ramp" else self._double()
        if start is None or self.lab.stop():
            return None
        self.found.step = max(1, round(0.05 * start))
        return self._with_margin(self._bracket(start))

    def _memory_limit(self) -> tuple[int, bool]:
        target = self.lab.fresh_target(1)
        blocks = target.blocks_at(self.lab.session_length_s)
        total = target.pool().total_blocks
        return (total // blocks, True) if blocks else (self.lab.max_sessions, False)

    # -- where to look ------------------------------------------------------------------------------------------

    def _ramp(self) -> int | None:
        """The largest number of sessions that the controller held in health."""
        gains = self.gains
        limit_ms = self._limit_ms()
        controller = AimdController(gains, limit_ms)
        driver = self.lab.driver(self.ceiling)
        watch = WindowReporter(self.lab, driver, "ramp", f"AIMD, target {gains.target:.0%} of the deadline")
        self._ramp_windows = watch.windows
        healthy, window_s = 0, max(gains.window_s, RAMP_WINDOW_PERIODS * self.lab.period_s)
        for _ in range(RAMP_WINDOWS):
            try:
                room = self._seat(driver, min(int(controller.cap), self.ceiling))
                watch.cap, watch.offered = controller.cap, driver.population.refused + len(driver.population)
                driver.run_until(driver.clock.now() + window_s)
            except DeviceMemoryError as error:
                self.lab.observer.notice(f"the ramp ends here: {error.message}")
                break
            tally, _ = watch.close_window()
            seated = len(driver.population)
            missed = tally.misses > 0 and limit_ms <= self.lab.deadline_ms
            decision = controller.update(tally.latency.percentile(gains.quantile), missed, seated)
            self.lab.observer.event(
                "admission",
                {"t_s": driver.clock.now(), "session_limit": decision.cap, "action": decision.action},
            )
            if self.lab.stop():
                break
            if decision.action == "decrease":
                surplus = seated - int(controller.cap)
                watch.shed += max(0, surplus)
                driver.population.close_newest(surplus)
            else:
                healthy = max(healthy, seated)
            if controller.decreases >= 2 or not room or seated >= self.ceiling or seated == 0:
                break
        return max(1, healthy)

    def _limit_ms(self) -> float:
        """The tightest latency that an objective asks for; the deadline where none does."""
        return min((o.limit for o in self.lab.objectives if o.unit == "ms"), default=self.lab.deadline_ms)

    def _seat(self, driver: Drives, wanted: int) -> bool:
        """Open sessions up to `wanted`, each at an age of its own; False when the engine has no more room."""
        population = driver.population
        while len(population) < wanted:
            age = (len(population) * GOLDEN % 1.0) * self.lab.session_length_s
            try:
                driver.seat(driver.clock.now(), age)
            except SessionRefused:
                population.refused += 1
                return False
        return True

    def _double(self) -> int | None:
        """`--search-method bisect`: double from one session until a look fails; the last good one."""
        good, count = 0, 1
        while not self.lab.stop():
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
        return not self.lab.stop() and self._budget.affords(looks=1, confirmations=CONFIRMATIONS_KEPT)

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
        """Whether one N is promising. Where a look fails a second one decides: a busy moment is not the load.

        An N that failed in both is one that was seen to fail.
        """
        promising, point = self._glance(sessions)
        if point.verdict == "fail" and point.limited_by not in NOT_BY_CHANCE and not self.lab.stop():
            promising, point = self._glance(sessions)
        self._note_failure(point)
        return promising

    def _glance(self, sessions: int) -> tuple[bool, TrialResult]:
        """A short look, and whether it shows nothing against so many sessions."""
        if self._grows:
            plan = PointPlan(sessions, "screen", ages="end", length_s=self._last_s(LOOK_STEPS), look=True)
        else:
            plan = PointPlan(sessions, "screen", max_steps=LOOK_STEPS, look=True)
        with self._budget.looking():
            run, point = self._measure(plan)
        self._note_look(run.promising, point)
        return run.promising, point

    def _note_look(self, promising: bool, point: TrialResult) -> None:
        if promising and point.batches:
            self._budget.expect(self.lab.steps_needed / point.batches)
        if promising and worst_latency_share(point) < HEADROOM:
            self._calm.add(point.sessions)

    def _note_failure(self, point: TrialResult) -> None:
        found = self.found
        if point.verdict == "fail" and point.sessions < (found.first_failing or self.lab.max_sessions + 1):
            found.first_failing, found.binding = point.sessions, point.limited_by

    # -- one point ----------------------------------------------------------------------------------------------

    def _last_s(self, steps: int) -> float:
        """The last stretch of a session's life that surely has that many steps, one a period at the least."""
        return min(self.lab.session_length_s, (1.05 * steps + 2 * WARM_UP_STEPS) * self.lab.period_s)

    @property
    def _grows(self) -> bool:
        return self.lab.profile.policy_spec.grows

    def _run(self, plan: PointPlan) -> TrialResult:
        return self._measure(plan)[1]

    def _measure(self, plan: PointPlan, reruns: int = RERUNS) -> tuple[PointRun, TrialResult]:
        """One point; again where the generator stalled, since that says nothing of so many sessions."""
        run = PointRun(self.lab, plan)
        point = run.run(into=self.points)
        if self._soak or not run.spoilt or self.lab.stop() or not reruns:
            return run, point
        del run  # its engine, before the next one is made
        return self._measure(plan, reruns - 1)


def worst_latency_share(point: TrialResult) -> float:
    """The largest share of a latency objective's limit that its percentile took; 0 where none is on latency."""
    shares = (o.measured / o.limit for o in point.objectives if o.unit == "ms" and o.measured is not None)
    return max(shares, default=0.0)
