"""`--replay`: a recorded load again, run by run, each on a fresh engine and judged for itself.

Callers, audio and turns come from the file, and so does the length of each run; the engine, its cache and how fast it
is are those of today. A run ends early only when nobody is left, or a full pool has been silent for long enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metronome_cli.capacity.lab import Lab
from metronome_cli.capacity.point import PointPlan, PointRun
from metronome_cli.capacity.policy_comparison import OfferedLoad
from metronome_cli.capacity.scout import SearchState
from metronome_cli.core.errors import Verdict
from metronome_cli.load.arrivals import Arrival
from metronome_cli.load.trace import LoopedAudio, RecordedTrial, RecordedTurns, RecordedWorkload
from metronome_cli.load.trace_file import LoadTrace
from metronome_cli.results.capacity_result import TrialResult

Give = Callable[[Lab, RecordedTrial, list[TrialResult]], object]  # one run, its point added to the list


def take_over(lab: Lab, run: RecordedTrial, loop: LoopedAudio) -> None:
    """From now on the lab's callers are the run's: what they hear, say, and when in the period."""
    callers, period_s = run.callers, lab.period_s
    lab.streams = RecordedWorkload(run, loop)
    lab.turns = lambda index: RecordedTurns(callers[index], period_s)


def give_in_process(lab: Lab, run: RecordedTrial, into: list[TrialResult]) -> None:
    """On an engine in this process. Raises EngineError."""
    ReplayedPoint(lab, run).run(into=into)


def recorded_load(lab: Lab, recorded: LoadTrace) -> OfferedLoad:
    """What arms are offered again: every recorded arm had the same callers, so one that had them all tells."""
    arms = [run for run in recorded.runs if run.head.kind == "arm"]
    run = max(arms, key=lambda run: len(run.callers))
    seconds = run.callers[-1].start_s + run.callers[-1].lifetime_s
    take_over(lab, run, lab.loop)
    return OfferedLoad(len(run.callers), len(run.callers) / max(seconds, lab.period_s), run)


class TraceReplay:
    """Every run of points in a file; `points` grows as it goes."""

    def __init__(self, lab: Lab, recorded: LoadTrace, give: Give | None = None) -> None:
        self.points: list[TrialResult] = []
        self._lab = lab
        self._loop = lab.loop
        self._give = give or give_in_process
        self._runs = [run for run in recorded.runs if run.head.kind == "point"]

    def run(self) -> None:
        """Raises EngineError."""
        whole = sum(run.end_s for run in self._runs)
        done = 0.0
        for run in self._runs:
            if self._lab.stop():
                return
            self._lab.progress = done / whole, (done + run.end_s) / whole
            take_over(self._lab, run, self._loop)
            self._give(self._lab, run, self.points)
            done += run.end_s

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
            found.undecided = "no run of the file was shown to hold"
        return found

    def _held(self) -> set[int]:
        """Numbers that passed. Where sessions were met at every age, and not lived through, it must also have been
        shown that as many fit when everybody is old, as whoever recorded them had to show.
        """
        passed = [
            (run, p.sessions) for run, p in zip(self._runs, self.points, strict=False) if p.verdict == "pass"
        ]
        fit = max((sessions for run, sessions in passed if run.head.memory_only), default=0)
        return {
            sessions
            for run, sessions in passed
            if not run.head.memory_only
            and (run.head.ages != "spread" or sessions <= fit or run.end_s >= self._lab.session_length_s)
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


class ReplayedPoint(PointRun):
    """One recorded run as a point."""

    def __init__(self, lab: Lab, recorded: RecordedTrial) -> None:
        self._recorded = recorded
        head = recorded.head
        plan = PointPlan(
            head.sessions,
            head.purpose,
            ages=head.ages,
            length_s=recorded.end_s,
            settle_early=False,
            memory_only=head.memory_only,
        )
        super().__init__(lab, plan, seats=min(len(recorded.callers), 2 * head.sessions))

    def _arrivals(self) -> Sequence[Arrival]:
        return [caller.arrival for caller in self._recorded.callers]

    def _top_up(self) -> None:
        """Newcomers come as they came."""
