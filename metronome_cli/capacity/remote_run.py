"""`capacity` of a server over the network: the same plan, search and report, other points.

A bounded cache cannot be told from a growing one from outside, and sessions cannot be made old: so what is
confirmed is confirmed over the whole session length, in real time. Short looks only say where to confirm.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from metronome_cli.backends.drives import Drives
from metronome_cli.backends.in_process.population import AudioSource
from metronome_cli.backends.step_engine import Target
from metronome_cli.backends.websocket.endpoint import Endpoint
from metronome_cli.backends.websocket.monitor import EVERY_S
from metronome_cli.backends.websocket.paced import WirePopulation
from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.bisect_search import Search
from metronome_cli.capacity.capacity_run import CapacityRun
from metronome_cli.capacity.lab import TargetFactory
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.capacity.point import PointPlan
from metronome_cli.capacity.remote_lab import RemoteLab, WebsocketSetup, at_rate
from metronome_cli.capacity.remote_point import RemotePointRun
from metronome_cli.capacity.remote_replay import give_to_server, refuse_for_server
from metronome_cli.capacity.replay import TraceReplay
from metronome_cli.capacity.scout import LOOK_STEPS
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.http import shown
from metronome_cli.core.stop import StopRequest
from metronome_cli.forecast.trace_forecast import with_forecast
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.events import Observer, ObserverGroup
from metronome_cli.results.run_report import Report

SEAT_POLL_S = 0.1


def run_remote_capacity(
    plan: CapacityPlan,
    remote: WebsocketSetup,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
) -> Report:
    """Measure a server. Raises UsageError for bad input, EngineError when the server cannot be reached at all."""
    if plan.compare or plan.guard or plan.trials:
        raise UsageError(
            "--url measures a server as it is",
            hint="leave --compare-policies, --admission-control and --repeat out",
        )
    observer = observer or ObserverGroup()
    remote.crew()  # what is missing for it is told before anybody knocks
    observer.phase("knock", f"at {shown(remote.target)}")
    found = remote.find(plan.profile.frame.period_s)
    profile = at_rate(plan.profile, found.traits.sample_rate)
    plan = replace(plan, profile=profile, clock="real", batching="continuous")
    return RemoteCapacityRun(plan, remote, found, observer, stop or StopRequest()).run()


class RemoteCapacityRun(CapacityRun):
    """One run of one plan against one server."""

    _whole_frames = True
    _in_this_process = False
    _lives_once = True

    def __init__(
        self,
        plan: CapacityPlan,
        remote: WebsocketSetup,
        found: Endpoint,
        observer: Observer,
        stop: StopRequest,
    ) -> None:
        super().__init__(plan, observer, stop, build=_build)
        self._remote = remote
        self._endpoint = found
        self._fetch = remote.fetch()
        self._lab_here: RemoteLab | None = None
        if self.kept_load.recorded is not None:
            refuse_for_server(self.kept_load.recorded)

    def _measure(self, streams: AudioSource) -> None:
        plan = self.plan
        self.engine = self._endpoint.describe()
        self.weights = "unknown"
        lab = self._lab_here = self._lab(self._build(plan, self.observer), streams)
        try:
            if self.kept_load.recorded is not None:
                self.replay = TraceReplay(lab, self.kept_load.recorded, give_to_server)
                self.points = self.replay.points
                self.replay.run()
                return
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

    def report(self) -> Report:
        """As of any run; with what the server's occupancy foretells, where it was scraped."""
        lab = self._lab_here
        return with_forecast(super().report(), lab.forecast if lab else None, "The server's")

    def _lab(self, make_target: TargetFactory, streams: AudioSource) -> RemoteLab:
        remote = self._remote
        return self._lab_of(
            RemoteLab,
            make_target,
            streams,
            endpoint=self._endpoint,
            fetch=self._fetch,
            metric=remote.metric,
            crew=remote.crew(),
            scrape_every_s=remote.scrape_every_s or min(EVERY_S, max(0.2, self.plan.length_s / 120)),
        )


class RemoteSearch(Search):
    """The search, with points over the network.

    A server that turns callers away, or lets them wait, has told how many seats it has; nothing beyond them but
    the next one is tried then.
    """

    @property
    def _server(self) -> RemoteLab:
        return cast(RemoteLab, self.lab)

    @property
    def ceiling(self) -> int:
        seats = self._server.seats
        return super().ceiling if seats is None else max(1, min(super().ceiling, seats))

    def _run(self, plan: PointPlan) -> TrialResult:
        return RemotePointRun(self._server, plan).run(into=self.points)

    def _ramp(self) -> int | None:
        try:
            return super()._ramp()
        finally:
            self._server.hang_up()

    def _seat(self, driver: Drives, wanted: int) -> bool:
        """Let callers knock, and wait until each has a seat or has none."""
        room = super()._seat(driver, wanted)
        population = cast(WirePopulation, driver.population)
        while population.preparing and not self.lab.stop():
            driver.run_until(driver.clock.now() + SEAT_POLL_S)
        if population.ended["rejected"] or population.ended["queue_timeout"]:
            self._server.note_seats(max(1, len(population)))
            return False
        return room

    def _look(self, sessions: int) -> bool:
        return sessions <= self.ceiling and super()._look(sessions)

    def _glance(self, sessions: int) -> tuple[bool, TrialResult]:
        run = RemotePointRun(self._server, PointPlan(sessions, "screen", ages="start", max_steps=LOOK_STEPS))
        with self._budget.looking():
            point = run.run(into=self.points)
        self._note_look(run.promising, point)
        return run.promising, point

    def _judged(self, sessions: int, role: str) -> TrialResult:
        """The whole session length, ended early only by a failure."""
        return self._run(PointPlan(sessions, role, ages="start", length_s=self.lab.session_length_s))

    def _show_the_next_fails(self) -> None:
        if self.found.safe is not None and self.found.safe == self._server.seats:
            self.found.step = 1
        super()._show_the_next_fails()


def _build(plan: CapacityPlan, observer: Observer) -> TargetFactory:
    """A server is not built here: no lab of this module asks for it."""

    def none(profile: Profile, seats: int) -> Target:
        raise NotImplementedError("a server over the network is not made here")

    return none
