"""`--replay` to a server: recorded callers over the network, as far as a server can be given them.

They knock together and are new, as all callers of a server are here; so a load in which some came later, had lived
before, or fell on the beat together, is refused. Who speaks when is on record and told to no server: it decides that.
"""

from __future__ import annotations

from typing import cast

from metronome_cli.capacity.lab import Lab
from metronome_cli.capacity.point import PointPlan
from metronome_cli.capacity.remote_lab import RemoteLab
from metronome_cli.capacity.remote_point import RemotePointRun
from metronome_cli.core.errors import UsageError
from metronome_cli.load.trace import RecordedTrial
from metronome_cli.load.trace_file import LoadTrace
from metronome_cli.results.capacity_result import TrialResult


def refuse_for_server(recorded: LoadTrace) -> None:
    """Raises UsageError for a load that callers of a server cannot make."""
    problem = next(filter(None, map(_problem, recorded.runs)), None)
    if recorded.head.batching == "periodic":
        problem = "its sessions fall on the beat together (--batching periodic)"
    if problem is not None:
        raise UsageError(
            f"--replay: {recorded.path}: {problem}; callers of a server are new and begin together",
            hint="record with --url, or with --sessions N --soak",
        )


def _problem(run: RecordedTrial) -> str | None:
    if any(caller.age_s for caller in run.callers):
        return f"in run {run.head.trial} sessions have lived before"
    if any(caller.start_s for caller in run.callers):
        return f"in run {run.head.trial} callers come later"
    if len({caller.lifetime_s for caller in run.callers}) > 1:
        return f"in run {run.head.trial} some stay longer than others"
    return None


def give_to_server(lab: Lab, run: RecordedTrial, into: list[TrialResult]) -> None:
    """One recorded run. Raises EngineError."""
    ReplayedRemotePoint(cast(RemoteLab, lab), run).run(into=into)


class ReplayedRemotePoint(RemotePointRun):
    """One recorded run as a point."""

    def __init__(self, lab: RemoteLab, recorded: RecordedTrial) -> None:
        self._recorded = recorded
        head = recorded.head
        plan = PointPlan(
            len(recorded.callers), head.purpose, ages="start", length_s=recorded.end_s, settle_early=False
        )
        super().__init__(lab, plan)

    @property
    def _lifetime_s(self) -> float:
        return self._recorded.callers[0].lifetime_s

    @property
    def _most_s(self) -> float:
        return self._recorded.end_s

    def _over(self) -> bool:
        return self.driver.clock.now() - self._spoke_s >= self._most_s or super()._over()
