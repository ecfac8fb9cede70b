"""Finds N*: a scout says where to look, a confirmation on a fresh engine says what holds, and the next step fails.

What is reported as safe was confirmed at the stated confidence; what is reported as failing was seen to fail.
"""

from __future__ import annotations

from metronome_cli.capacity.scout import NOT_BY_CHANCE, Scout, SearchState
from metronome_cli.capacity.trial_plan import TrialPlan, memory_plan
from metronome_cli.core.formatting import plural
from metronome_cli.results.capacity_result import TrialResult

DOWNWARD_TRIES = 9  # strides double while points fail, so that they reach 1 from anywhere


class Search(Scout):
    """One search under one lab's conditions."""

    def run(self) -> SearchState:
        candidate = self._scouted()
        if candidate is not None and not self.context.stop():
            self._settle(candidate)
        if self.context.stop() and self.found.undecided is None:
            self.found.undecided = "interrupted"
        return self.found

    def _settle(self, candidate: int) -> None:
        """Confirm the candidate, stepping down while it does not hold; then show that the next step fails."""
        found, stride = self.found, self.found.step
        for _ in range(DOWNWARD_TRIES):
            point = self._confirm(candidate)
            if self.context.stop():
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
            lower, stride = candidate - stride, 2 * stride
            if not self._budget.affords(confirmations=2):  # time for one that passes
                lower = min(lower, 2 * candidate // 3)
            candidate = max(1, lower)
            if point.verdict != "fail":  # a few late steps: what holds is not far
                stride = max(1, min(stride, candidate // 5))
        if found.safe is None:
            self._weigh_the_looks()
            return
        found.undecided = None
        self._show_the_next_fails()

    def _weigh_the_looks(self) -> None:
        """Where fewer sessions failed than had been well within the limits, it was not the load that failed them."""
        found, held = self.found, max(self._calm, default=0)
        if found.first_failing is None or found.binding in NOT_BY_CHANCE or held <= found.first_failing:
            return
        found.undecided = (
            f"{plural(found.first_failing, 'session')} failed, though {held:,} held in a short look before: "
            "the machine, not the load, made the difference"
        )
        found.first_failing = None

    def _confirm(self, sessions: int, role: str = "confirm") -> TrialResult:
        """The judged run at one N, and that every session's cache fits to its end.

        A growing cache is met in the last stretch of every session's life, where its step is dearest. A bounded one
        is met at every age, and then once more with everybody old.
        """
        with self._budget.confirming():
            return self._judged(sessions, role)

    def _judged(self, sessions: int, role: str) -> TrialResult:
        length_s = self.context.session_length_s
        if not self._sets_age:  # a bounded cache cannot be told from a growing one, so whole sessions confirm
            return self._run(TrialPlan(sessions, role, ages="start", length_s=length_s))
        if self._soak:
            return self._run(TrialPlan(sessions, "soak", ages="start", length_s=length_s, until="end"))
        if self._grows:
            return self._run(
                TrialPlan(sessions, role, ages="end", length_s=self._last_s(self.context.batches_to_prove))
            )
        point = self._run(TrialPlan(sessions, role, max_batches=self._confirm_steps))
        if point.verdict == "pass" and not self.context.stop():
            return self._all_old(sessions)
        return point

    def _all_old(self, sessions: int) -> TrialResult:
        return self._run(memory_plan(sessions, self.context.session_length_s, self.context.period_s))

    def _show_the_next_fails(self) -> None:
        found = self.found
        assert found.safe is not None
        if found.safe == self.slots:
            found.step = 1
        while not self.context.stop():
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
            if following > self.context.max_sessions:
                found.binding = "slots"
                return
            point = self._confirm(following, role="exceed")
            if point.verdict == "fail":
                self._note_failure(point)
            elif point.verdict == "inconclusive":
                self._lean_to_deadline(point)
                found.step *= 2
                if found.step > 4 * max(1, round(0.05 * found.safe)):
                    if found.first_failing is None:
                        found.undecided = f"{following:,} sessions neither hold nor fail: {point.reason}"
                    return
            else:
                found.safe = following

    def _lean_to_deadline(self, point: TrialResult) -> None:
        """Late steps that are too few to refute still say what comes before a failure further up."""
        if point.late_batches:
            self.found.binding = "deadline"

    def _leap_to_a_failure(self, sessions: int) -> None:
        """Out of time and nothing seen to fail yet: short looks above all that did not fail, each half as many more,
        until one does.
        """
        sessions = max([sessions, *(point.sessions for point in self.points if point.verdict != "fail")])
        while sessions < self.ceiling and not self.context.stop():
            sessions = min(self.ceiling, sessions + max(1, sessions // 2))
            self._look(sessions)
            if self.found.first_failing is not None:
                return
        if self.memory_known and self.ceiling == self.memory_limit:
            self._show_memory_fails(self.memory_limit + 1)
        else:
            self.found.undecided = "no larger number was seen to fail in the time given"

    def _out_of_time(self) -> bool:
        """Whether one more confirmation would take the search past its budget."""
        return not self._budget.affords(confirmations=1)

    def _show_memory_fails(self, sessions: int) -> None:
        """One session more than memory holds, lived through to the session length."""
        found = self.found
        point = self._confirm(sessions, role="memory") if self._grows else self._all_old(sessions)
        if point.verdict == "fail":
            found.first_failing, found.binding = sessions, point.limited_by
        else:
            found.binding = "memory"
            held = plural(sessions - 1, "session")
            found.undecided = f"memory was reckoned to hold {held}, but {sessions:,} did not fail"
