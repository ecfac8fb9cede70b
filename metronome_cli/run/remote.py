"""`capacity` of a server over the network: the same plan, search and report, other points.

A bounded cache cannot be told from a growing one from outside, and sessions cannot be made old: so what is
confirmed is confirmed over the whole session length, in real time. Short looks only say where to confirm.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

from metronome_cli.config.profile import Profile
from metronome_cli.control.aimd import AimdGains
from metronome_cli.errors import UsageError
from metronome_cli.load.population import StreamSource
from metronome_cli.report.model import Point, Report
from metronome_cli.run.capacity import CapacityPlan, CapacityRun
from metronome_cli.run.lab import TargetFactory
from metronome_cli.run.metrics_page import fetch
from metronome_cli.run.observer import Observer, Observers
from metronome_cli.run.point import PointPlan
from metronome_cli.run.predict_scrape import ScrapePlan
from metronome_cli.run.remote_lab import RemoteLab, RemotePlan, at_rate
from metronome_cli.run.remote_point import RemotePointRun
from metronome_cli.run.search import LOOK_BAD, LOOK_STEPS, Search
from metronome_cli.run.stop import Stop
from metronome_cli.targets.base import Target
from metronome_cli.targets.endpoint import Endpoint


def run_remote_capacity(
    plan: CapacityPlan, remote: RemotePlan, observer: Observer | None = None, stop: Stop | None = None
) -> Report:
    """Measure a server. Raises UsageError for bad input, EngineError when the server cannot be reached at all."""
    if plan.compare or plan.guard or plan.trials:
        raise UsageError(
            "--target measures a server as it is", hint="leave --compare-policies, --guard and --trials out"
        )
    found = remote.find()
    plan = replace(plan, profile=at_rate(plan.profile, found.traits.sample_rate), clock="real")
    return RemoteCapacityRun(plan, remote, found, observer or Observers(), stop or Stop()).run()


class RemoteCapacityRun(CapacityRun):
    """One run of one plan against one server."""

    def __init__(
        self, plan: CapacityPlan, remote: RemotePlan, found: Endpoint, observer: Observer, stop: Stop
    ) -> None:
        super().__init__(plan, observer, stop, build=_build)
        self._remote = remote
        self._endpoint = found

    def _measure(self, streams: StreamSource) -> None:
        plan = self.plan
        self.engine = self._endpoint.describe()
        self.weights = "unknown"
        lab = self._lab(streams)
        try:
            if plan.sessions is not None:
                whole = PointPlan(plan.sessions, "single", ages="start", length_s=plan.length_s)
                RemotePointRun(lab, replace(whole, settle_early=False)).run(into=self.points)
                return
            self.search = RemoteSearch(
                lab,
                plan.gains or AimdGains(),
                plan.method,
                soak=True,
                confirm_steps=plan.confirm_steps,
                budget_s=plan.budget_s,
            )
            self.points = self.search.points
            self.search.run()
        finally:
            lab.hang_up()

    def _lab(self, streams: StreamSource) -> RemoteLab:
        plan, scrape = self.plan, self._remote.scrape
        return RemoteLab(
            profile=plan.profile,
            make_target=_build(plan, self.observer),
            streams=streams,
            objectives=self._judged_by,
            clock="real",
            batching="continuous",
            session_length_s=plan.length_s,
            seed=plan.seed,
            observer=self.observer,
            stop=self.stop,
            max_sessions=plan.max_sessions,
            random_weights=False,
            began_s=self._began_s,
            pulse=self.pulse,
            endpoint=self._endpoint,
            fetch=None if scrape is None else partial(fetch, ScrapePlan(scrape).address),
            metric=self._remote.metric,
        )


class RemoteSearch(Search):
    """The search, with points over the network."""

    def _run(self, plan: PointPlan) -> Point:
        return RemotePointRun(cast(RemoteLab, self.lab), plan).run(into=self.points)

    def _ramp(self) -> int | None:
        try:
            return super()._ramp()
        finally:
            cast(RemoteLab, self.lab).hang_up()

    def _look(self, sessions: int) -> bool:
        point = self._run(PointPlan(sessions, "screen", ages="start", max_steps=LOOK_STEPS))
        return point.verdict != "fail" and point.missed_steps <= LOOK_BAD

    def _confirm(self, sessions: int, role: str = "confirm") -> Point:
        """The whole session length, ended early only by a failure."""
        return self._run(PointPlan(sessions, role, ages="start", length_s=self.lab.session_length_s))


def _build(plan: CapacityPlan, observer: Observer) -> TargetFactory:
    """A server is not built here: no lab of this module asks for it."""

    def none(profile: Profile, seats: int) -> Target:
        raise NotImplementedError("a server over the network is not made here")

    return none
