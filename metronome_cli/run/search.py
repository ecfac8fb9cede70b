"""Finds N*: a ramp under AIMD, a bracket of short looks, a confirmation on a fresh engine, and the step that fails.

The ramp and the looks only say where to confirm. What is reported as safe was confirmed at the stated confidence;
what is reported as failing was seen to fail. Each look and confirmation has an engine of its own, since a
long-lived one ages.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from metronome_cli.control.aimd import Aimd, AimdGains
from metronome_cli.engine.types import SlotRefused
from metronome_cli.errors import DeviceMemoryError
from metronome_cli.load.drives import Drives
from metronome_cli.report.capacity import Binding, Point
from metronome_cli.report.measured import TimelinePoint
from metronome_cli.report.thin import Timeline
from metronome_cli.run.lab import Lab
from metronome_cli.run.point import WARM_UP_STEPS, PointPlan, PointRun, all_old
from metronome_cli.run.watch import Watch

Method = Literal["ramp", "bisect"]
LOOK_STEPS = 80
LOOK_BAD = 1  # bad steps that a promising look may have
GOLDEN = 0.6180339887498949
RAMP_WINDOWS = 200
RAMP_WINDOW_PERIODS = 6  # of a ramp's window, at the least
RERUNS = 2  # of a point in which the generator stalled
DOWNWARD_TRIES = 9  # strides double while points fail, so that they reach 1 from anywhere
NOT_BY_CHANCE: tuple[Binding, ...] = ("memory", "context", "slots")
AUTO_BUDGET_S = 46.0  # of wall time
AUTO_CONFIRMATIONS = 4  # where one takes long, as with a frame a second
ROOM_FOR_BAD = 2.2  # times the steps that a run without a bad one needs: room for one or two


@dataclass(slots=True)
class Found:
    """Where the search stands. None where nothing is known yet."""

    safe: int | None = None
    first_failing: int | None = None
    binding: Binding = "none"
    step: int = 1
    undecided: str | None = None  # why there is no answer


class Search:
    """One search under one lab's conditions. `points` and `ramp_timeline` grow as it goes."""

    def __init__(
        self,
        lab: Lab,
        gains: AimdGains,
        method: Method,
        *,
        soak: bool,
        confirm_steps: int,
        budget_s: float | None = None,
    ) -> None:
        self.lab = lab
        self.gains = gains
        self.method: Method = method
        self.points: list[Point] = []
        self._ramp_windows = Timeline()
        self.memory_limit, self.memory_known = self._memory_limit()
        self.found = Found()
        self._soak = soak
        self._budget_s = budget_s
        self._confirmation_s = 0.0  # of wall time, what the last confirmation took
        self._confirm_steps = max(confirm_steps, round(ROOM_FOR_BAD * lab.steps_needed))

    @property
    def ramp_timeline(self) -> list[TimelinePoint]:
        """The controller's windows so far."""
        return self._ramp_windows.windows

    @property
    def ceiling(self) -> int:
        """No point in looking beyond: seats, or sessions whose caches fit at the session length."""
        return max(1, min(self.lab.max_sessions, self.memory_limit))

    def run(self) -> Found:
        start = self._ramp() if self.method == "ramp" else self._double()
        if self.lab.stop() or start is None:
            return self._interrupted() if self.lab.stop() else self.found
        self.found.step = max(1, round(0.05 * start))
        candidate = self._bracket(start)
        if not self.lab.stop():
            self._settle(self._with_margin(candidate))
        return self._interrupted() if self.lab.stop() else self.found

    def _interrupted(self) -> Found:
        if self.found.undecided is None:
            self.found.undecided = "interrupted"
        return self.found

    def _memory_limit(self) -> tuple[int, bool]:
        target = self.lab.fresh_target(1)
        blocks = target.blocks_at(self.lab.session_length_s)
        total = target.pool().total_blocks
        return (total // blocks, True) if blocks else (self.lab.max_sessions, False)

    # -- where to look ------------------------------------------------------------------------------------------

    def _ramp(self) -> int | None:
        """The largest number of sessions that the controller held in health."""
        self.lab.progress = (0.05, 0.3)
        gains = self.gains
        limit_ms = self._limit_ms()
        controller = Aimd(gains, limit_ms)
        driver = self.lab.driver(self.ceiling)
        watch = Watch(self.lab, driver, "ramp", f"AIMD, target {gains.target:.0%} of the deadline")
        self._ramp_windows = watch.windows
        healthy, window_s = 0, max(gains.window_s, RAMP_WINDOW_PERIODS * self.lab.period_s)
        for window in range(RAMP_WINDOWS):
            try:
                room = self._seat(driver, min(int(controller.cap), self.ceiling))
                watch.cap, watch.offered = controller.cap, driver.population.refused + len(driver.population)
                driver.run_until(driver.clock.now() + window_s)
            except DeviceMemoryError as error:
                self.lab.observer.notice(f"the ramp ends here: {error.message}")
                break
            tally, _ = watch.close_window(window / (window + 5))
            seated = len(driver.population)
            missed = tally.misses > 0 and limit_ms <= self.lab.deadline_ms
            decision = controller.update(tally.latency.percentile(gains.quantile), missed, seated)
            self.lab.observer.event(
                "control", {"t_s": driver.clock.now(), "cap": decision.cap, "action": decision.action}
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
            except SlotRefused:
                population.refused += 1
                return False
        return True

    def _double(self) -> int | None:
        """`--method bisect`: double from one session until a look fails; the last good one."""
        self.lab.progress = (0.05, 0.3)
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
        """The largest promising N: strides up from `start`, then halves between good and bad."""
        self.lab.progress = (0.3, 0.5)
        step, good, bad = self.found.step, start, self.ceiling + 1
        stride = step
        while good + stride < bad and not self.lab.stop():
            if self._look(good + stride):
                good += stride
                stride *= 2
            else:
                bad = good + stride
        if bad > self.ceiling and good < self.ceiling and not self.lab.stop():
            if self._look(self.ceiling):
                return self.ceiling
            bad = self.ceiling
        while bad - good > step and not self.lab.stop():
            middle = (good + bad) // 2
            if self._look(middle):
                good = middle
            else:
                bad = middle
        return good

    def _with_margin(self, candidate: int) -> int:
        """A step below where latency begins to fail, since a long run there seldom passes; memory has a sharp edge."""
        if candidate >= self.ceiling or self.found.binding in NOT_BY_CHANCE or self._grows:
            return candidate
        return max(1, candidate - self.found.step)

    def _look(self, sessions: int) -> bool:
        """Whether one N is promising. Where a look fails a second one decides: a busy moment is not the load.

        An N that failed in both is one that was seen to fail.
        """
        promising, point = self._glance(sessions)
        if point.verdict == "fail" and point.binding not in NOT_BY_CHANCE and not self.lab.stop():
            promising, point = self._glance(sessions)
        self._note_failure(point)
        return promising

    def _glance(self, sessions: int) -> tuple[bool, Point]:
        """A short look, and whether it neither failed nor shows more than one bad step."""
        if self._grows:
            plan = PointPlan(sessions, "screen", ages="end", length_s=self._last_s(LOOK_STEPS), look=True)
        else:
            plan = PointPlan(sessions, "screen", max_steps=LOOK_STEPS, look=True)
        run, point = self._measure(plan)
        return point.verdict != "fail" and run.bad_steps <= LOOK_BAD, point

    def _note_failure(self, point: Point) -> None:
        found = self.found
        if point.verdict == "fail" and point.sessions < (found.first_failing or self.lab.max_sessions + 1):
            found.first_failing, found.binding = point.sessions, point.binding

    # -- what is so ---------------------------------------------------------------------------------------------

    def _settle(self, candidate: int) -> None:
        """Confirm the candidate, stepping down while it does not hold; then show that the next step fails."""
        found, stride = self.found, self.found.step
        self.lab.progress = (0.5, 0.9)
        for _ in range(DOWNWARD_TRIES):
            point = self._confirm(candidate)
            if self.lab.stop():
                return
            if point.verdict == "pass":
                found.safe = candidate
                break
            self._note_failure(point)
            if point.verdict != "fail":
                found.undecided = point.reason
                self._lean_to_deadline(point)
            if candidate == 1:
                break
            candidate, stride = max(1, candidate - stride), 2 * stride
            if point.verdict != "fail":  # a few late steps: what holds is not far
                stride = max(1, min(stride, candidate // 5))
        if found.safe is None:
            return
        found.undecided = None
        self.lab.progress = (0.9, 1.0)
        self._show_the_next_fails()

    def _confirm(self, sessions: int, role: str = "confirm") -> Point:
        """The judged run at one N, and that every session's cache fits to its end.

        A growing cache is met in the last stretch of every session's life, where its step is dearest. A bounded one
        is met at every age, and then once more with everybody old.
        """
        began_s = time.perf_counter()
        try:
            return self._judged(sessions, role)
        finally:
            self._confirmation_s = time.perf_counter() - began_s

    def _judged(self, sessions: int, role: str) -> Point:
        length_s = self.lab.session_length_s
        if self._soak:
            return self._run(PointPlan(sessions, "soak", ages="start", length_s=length_s, settle_early=False))
        if self._grows:
            return self._run(
                PointPlan(sessions, role, ages="end", length_s=self._last_s(self.lab.steps_needed))
            )
        point = self._run(PointPlan(sessions, role, max_steps=self._confirm_steps))
        if point.verdict == "pass" and not self.lab.stop():
            return self._all_old(sessions)
        return point

    def _all_old(self, sessions: int) -> Point:
        return self._run(all_old(self.lab, sessions))

    def _last_s(self, steps: int) -> float:
        """The last stretch of a session's life that surely has that many steps, one a period at the least."""
        return min(self.lab.session_length_s, (1.05 * steps + 2 * WARM_UP_STEPS) * self.lab.period_s)

    @property
    def _grows(self) -> bool:
        return self.lab.profile.policy_spec.grows

    def _show_the_next_fails(self) -> None:
        found = self.found
        assert found.safe is not None
        while not self.lab.stop():
            if found.first_failing is not None and (
                found.first_failing - found.safe <= found.step or self._out_of_time()
            ):
                return
            if found.first_failing is None and not self._grows and self._out_of_time():
                self._leap_to_a_failure(found.safe)
                return
            following = found.safe + found.step
            if found.first_failing is not None:  # the candidate fell far: halve what lies between
                following = max(following, (found.safe + found.first_failing) // 2)
            if self.memory_known and following > self.memory_limit:
                self._show_memory_fails(self.memory_limit + 1)
                return
            if following > self.lab.max_sessions:
                found.binding = "slots"
                return
            point = self._confirm(following, role="next")
            if point.verdict == "fail":
                self._note_failure(point)
            elif point.verdict == "inconclusive":
                self._lean_to_deadline(point)
                found.step *= 2
                if found.step > 4 * max(1, round(0.05 * found.safe)):
                    found.undecided = f"{following} sessions neither hold nor fail: {point.reason}"
                    return
            else:
                found.safe = following

    def _lean_to_deadline(self, point: Point) -> None:
        """Late steps that are too few to refute still say what comes before a failure further up."""
        if point.missed_steps:
            self.found.binding = "deadline"

    def _leap_to_a_failure(self, sessions: int) -> None:
        """Out of time and nothing seen to fail yet: short looks further up, each a quarter more, until one does."""
        while sessions < self.ceiling and not self.lab.stop():
            sessions = min(self.ceiling, sessions + max(1, sessions // 4))
            self._look(sessions)
            if self.found.first_failing is not None:
                return
        if self.memory_known and self.ceiling == self.memory_limit:
            self._show_memory_fails(self.memory_limit + 1)
        else:
            self.found.undecided = "no larger number was seen to fail in the time given"

    def _out_of_time(self) -> bool:
        """Whether one more confirmation would take the search past its budget; a safe and a failing N are known."""
        budget_s = self._budget_s or max(AUTO_BUDGET_S, AUTO_CONFIRMATIONS * self._confirmation_s)
        return time.perf_counter() - self.lab.began_s + self._confirmation_s > budget_s

    def _show_memory_fails(self, sessions: int) -> None:
        """One session more than memory holds, lived through to the session length."""
        found = self.found
        point = self._confirm(sessions, role="memory") if self._grows else self._all_old(sessions)
        if point.verdict == "fail":
            found.first_failing, found.binding = sessions, point.binding
        else:
            found.binding = "memory"
            found.undecided = (
                f"memory was reckoned to hold {sessions - 1} sessions, but {sessions} did not fail"
            )

    def _run(self, plan: PointPlan) -> Point:
        return self._measure(plan)[1]

    def _measure(self, plan: PointPlan, reruns: int = RERUNS) -> tuple[PointRun, Point]:
        """One point; again where the generator stalled, since that says nothing of so many sessions."""
        run = PointRun(self.lab, plan)
        point = run.run(into=self.points)
        if self._soak or not run.spoilt or self.lab.stop() or not reruns:
            return run, point
        del run  # its engine, before the next one is made
        return self._measure(plan, reruns - 1)
