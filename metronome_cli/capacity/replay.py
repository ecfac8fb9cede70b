"""`--replay`: repeats the trials of a load trace, each on a new engine and judged by itself.

Sessions, audio, turns and the length of each trial come from the file; the engine and its cache are the present ones.
A trial ends early only if no session is left, or after a silent collapse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from metronome_cli.backends.interface import BackendTraits
from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.policy_comparison import Offer
from metronome_cli.capacity.search import SearchState
from metronome_cli.capacity.trial import Trial, TrialOutcome
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.core.errors import UsageError, Verdict
from metronome_cli.load.trace import RecordedTrial
from metronome_cli.load.trace_file import LoadTrace
from metronome_cli.load.workload import recorded_workload
from metronome_cli.results.capacity_result import TrialResult


def under_recorded(context: TrialContext, run: RecordedTrial) -> TrialContext:
    """The same context with the sessions' audio, phases and turns of a recorded trial."""
    return replace(context, recorded=recorded_workload(run, context.audio, context.period_s))


def recorded_load(context: TrialContext, recorded: LoadTrace) -> tuple[TrialContext, Offer]:
    """Return the recorded offer. All policies had the same sessions, so the policy run with most of them is used."""
    runs = [run for run in recorded.runs if run.head.kind == "policy_run"]
    run = max(runs, key=lambda run: len(run.sessions))
    seconds = run.sessions[-1].start_s + run.sessions[-1].lifetime_s
    offer = Offer(len(run.sessions), len(run.sessions) / max(seconds, context.period_s), run)
    return under_recorded(context, run), offer


def check_replayable(recorded: LoadTrace, traits: BackendTraits) -> None:
    """Raise UsageError for a load that this backend cannot run.

    A backend that batches by itself cannot align frames. Sessions of one that cannot set their age are new and start
    together; the server decides when its model speaks.
    """
    if traits.batch == "period" and recorded.head.batching == "periodic":
        raise UsageError(
            f"--replay: {recorded.path}: recorded with --batching periodic, and this backend batches by itself",
            hint="record with --batching continuous",
        )
    if traits.sets_age:
        return
    problem = next(filter(None, map(_not_together, recorded.runs)), None)
    if problem is not None:
        raise UsageError(
            f"--replay: {recorded.path}: {problem}; sessions on a server are new and begin together",
            hint="record with --url, or with --sessions N --soak",
        )


def _not_together(run: RecordedTrial) -> str | None:
    if any(session.age_s for session in run.sessions):
        return f"in trial {run.head.trial} sessions are not new"
    if any(session.start_s for session in run.sessions):
        return f"in trial {run.head.trial} sessions start later"
    if len({session.lifetime_s for session in run.sessions}) > 1:
        return f"in trial {run.head.trial} some sessions stay longer than others"
    return None


class TraceReplay:
    """Every trial of a load trace; `points` grows as it goes."""

    def __init__(
        self,
        context: TrialContext,
        recorded: LoadTrace,
        note: Callable[[TrialOutcome], None] = lambda o: None,
    ) -> None:
        self.points: list[TrialResult] = []
        self._context = context
        self._note = note
        self._runs = [run for run in recorded.runs if run.head.kind == "trial"]

    def run(self) -> None:
        """Raises EngineError."""
        whole_s, done_s = sum(run.end_s for run in self._runs), 0.0
        for run in self._runs:
            if self._context.stop():
                return
            self._context.progress.span(done_s / whole_s, (done_s + run.end_s) / whole_s)
            self._note(self._trial(run).run(self.points))
            done_s += run.end_s

    def _trial(self, run: RecordedTrial) -> Trial:
        head = run.head
        plan = TrialPlan(
            head.sessions,
            head.purpose,
            ages=head.ages,
            length_s=run.end_s,
            until="end",
            memory_only=head.memory_only,
        )
        return Trial(
            under_recorded(self._context, run),
            plan,
            sessions=[session.spec for session in run.sessions],
            slots=min(len(run.sessions), 2 * head.sessions),
        )

    @property
    def found(self) -> SearchState:
        """What the runs say together: the largest number that held in each of its runs, and the smallest above it
        that failed in one.
        """
        failed = {point.sessions: point for point in self.points if point.verdict == "fail"}
        held = self._held() - set(failed)
        found = SearchState(safe=max(held, default=None))
        above = [sessions for sessions in failed if sessions > (found.safe or 0)]
        if above:
            found.first_failing = min(above)
            found.binding = failed[found.first_failing].limited_by
        if found.safe is None:
            found.undecided = "no trial of the file passed"
        return found

    def _held(self) -> set[int]:
        """Numbers that passed. A pass with sessions of all ages also needs a memory trial of as many sessions."""
        passed = [
            (run, p.sessions) for run, p in zip(self._runs, self.points, strict=False) if p.verdict == "pass"
        ]
        fit = max((sessions for run, sessions in passed if run.head.memory_only), default=0)
        return {
            sessions
            for run, sessions in passed
            if not run.head.memory_only
            and (run.head.ages != "spread" or sessions <= fit or run.end_s >= self._context.session_length_s)
        }

    @property
    def method(self) -> str:
        """As the report names it: one number judged, or a search's numbers."""
        return "single" if len({run.head.sessions for run in self._runs}) == 1 else "replay"

    @property
    def verdict(self) -> Verdict:
        """Whether something held; else whether something failed."""
        found = self.found
        if found.safe is not None:
            return "pass"
        return "inconclusive" if found.first_failing is None else "fail"
