"""`capacity`: how many live sessions hold every objective for the whole session length, and what binds.

A plan in, a report out. Also the Python API:

    from metronome_cli.capacity.capacity_run import run_capacity
    from metronome_cli.capacity.plan import CapacityPlan
    report = run_capacity(CapacityPlan(profile=load_profile("default")))
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, TypeVar

from metronome_cli import __version__
from metronome_cli.audio.open_audio import open_audio
from metronome_cli.backends.in_process.population import AudioSource
from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.bisect_search import Search
from metronome_cli.capacity.conclusion import Conclusion
from metronome_cli.capacity.in_process import load_model
from metronome_cli.capacity.lab import Lab, TargetFactory, batches_to_confirm
from metronome_cli.capacity.plan import DEFAULT_ARRIVALS_PER_S, DEFAULT_OFFERED, CapacityPlan
from metronome_cli.capacity.point import PointPlan, PointRun, memory_plan
from metronome_cli.capacity.policy_comparison import (
    ADMISSION_GAINS,
    GUARDED,
    OfferedLoad,
    compare_policies,
    default_variants,
)
from metronome_cli.capacity.repeats import predicted_collapse, run_repeats
from metronome_cli.capacity.replay import TraceReplay, recorded_load
from metronome_cli.capacity.summary import summarize
from metronome_cli.core.errors import EngineError, Status, exit_code_for
from metronome_cli.core.formatting import duration, plural
from metronome_cli.core.stop import LoadInterrupted, StopRequest
from metronome_cli.load.trace_match import KeptLoad
from metronome_cli.measure.environment import environment
from metronome_cli.measure.machine_load import CpuLoadSampler
from metronome_cli.measure.stall import StallDetector
from metronome_cli.results.audio_files import AudioFiles
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.events import Observer, ObserverGroup
from metronome_cli.results.load_generator import generator_of
from metronome_cli.results.policy_runs import PolicyRun, RepeatSeries
from metronome_cli.results.run_report import Report

Builder = Callable[[CapacityPlan, Observer], TargetFactory]
L = TypeVar("L", bound=Lab)


def build_in_process(plan: CapacityPlan, observer: Observer) -> TargetFactory:
    """Load the model once; every call of what comes back makes a fresh engine on its weights."""
    return load_model(
        plan.profile, device=plan.device, seed=plan.seed, weights=plan.weights, observer=observer
    ).fresh_target


def run_capacity(
    plan: CapacityPlan,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    build: Builder = build_in_process,
) -> Report:
    """Run it. Raises UsageError for bad input before anything is measured; later faults end in the report."""
    return CapacityRun(plan, observer or ObserverGroup(), stop or StopRequest(), build).run()


class CapacityRun:
    """One run of one plan; what is known so far, and the report that it makes at any instant."""

    _whole_frames = False  # whether speech is dealt out in whole frames
    _in_this_process = True
    _lives_once = False  # whether no session is followed by another, whatever the policy

    def __init__(self, plan: CapacityPlan, observer: Observer, stop: StopRequest, build: Builder) -> None:
        self.kept_load = KeptLoad(plan, observer)
        plan = self.plan = self.kept_load.plan
        self.observer = observer
        self.stop = stop
        self.points: list[TrialResult] = []
        self.arms: list[PolicyRun] = []
        self.trials: list[RepeatSeries] = []
        self.search: Search | None = None
        self.replay: TraceReplay | None = None
        self.error: str | None = None
        self.audio = AudioFiles()
        self.engine: dict[str, object] = {}
        self.weights: str | None = None
        self.pulse = StallDetector()
        self._load = CpuLoadSampler()
        self._build = build
        self._began_s = time.perf_counter()
        self._started_at = datetime.now(UTC)

    def run(self) -> Report:
        plan = self.plan
        seed = self.kept_load.audio_seed
        speech, self.audio = open_audio(plan.audio, plan.profile.frame, seed, self.observer)
        streams = self.kept_load.open(speech, whole_frames=self._whole_frames)
        self._announce()
        try:
            with self.pulse:
                if not self.stop():
                    self._measure(streams)
        except LoadInterrupted:
            self.observer.notice("stopped while the model was loaded")
        except EngineError as error:
            self.error = error.message
            self.observer.notice(f"the engine failed: {error.message}")
        finally:
            self.kept_load.close()
        report = self.report()
        self.observer.event("report", report.model_dump(mode="json", by_alias=True))
        return report

    def _announce(self) -> None:
        partial = self.report()
        keys = (
            "argv",
            "profile",
            "environment",
            "settings",
            "started_at",
            "clock",
            "version",
            "command",
            "seed",
        )
        dumped = partial.model_dump(mode="json", by_alias=True)
        self.observer.event("run_started", {key: dumped[key] for key in keys})

    def _measure(self, streams: AudioSource) -> None:
        plan = self.plan
        self.observer.phase("load", f"loading {plan.profile.name}")
        with self.stop.during_load() if self._in_this_process else nullcontext():
            make_target = self._build(plan, self.observer)
            self.engine = make_target(plan.profile, 1).describe()
        self.observer.event("backend_started", self.engine)
        self.weights = str(self.engine.get("weights", "random"))
        if self.stop():
            return
        lab = self._lab(make_target, streams)
        if plan.compare or plan.guard:
            self._compare(lab)
        elif self.kept_load.recorded is not None:
            self.replay = TraceReplay(lab, self.kept_load.recorded)
            self.points = self.replay.points
            self.replay.run()
        elif plan.trials is not None and plan.sessions is not None:
            policies = list(dict.fromkeys([plan.profile.policy_spec, plan.bounded_policy()]))
            run_repeats(lab, policies, plan.sessions, plan.trials, predicted_collapse, into=self.trials)
        elif plan.sessions is not None:
            self._judge_one(lab, plan.sessions)
        else:
            self.search = Search(
                lab,
                plan.gains or AimdGains(),
                plan.method,
                soak=plan.soak,
                confirm_steps=plan.confirm_steps,
                budget_s=plan.budget_s,
            )
            self.points = self.search.points
            self.search.run()

    def _lab(self, make_target: TargetFactory, streams: AudioSource) -> Lab:
        return self._lab_of(Lab, make_target, streams)

    def _lab_of(self, kind: type[L], make_target: TargetFactory, streams: AudioSource, **own: Any) -> L:
        """The conditions that all points share, as a lab of that kind; `own` is what it has beside them."""
        plan = self.plan
        lab = kind(
            profile=plan.profile,
            make_target=make_target,
            streams=streams,
            objectives=plan.judged_by(),
            clock=plan.clock,
            batching=plan.batching,
            session_length_s=plan.length_s,
            seed=plan.seed,
            observer=self.observer,
            stop=self.stop,
            max_sessions=plan.max_sessions,
            random_weights=self.weights == "random",
            began_s=self._began_s,
            pulse=self.pulse,
            recorder=self.kept_load.recorder,
            **own,
        )
        self._tell_of_few_steps(lab)
        return lab

    def _tell_of_few_steps(self, lab: Lab) -> None:
        """One session has a step a beat; where it lives only once, its beats may be fewer than a proof needs."""
        plan, beats = self.plan, int(self.plan.length_s / lab.period_s)
        once = self._lives_once or plan.soak or plan.profile.policy_spec.grows
        if not plan.judges or plan.replay is not None or not once or beats >= lab.steps_needed:
            return
        enough = duration(math.ceil(lab.steps_needed * lab.period_s))
        self.observer.notice(
            f"{duration(plan.length_s)} have {plural(beats, 'beat')}, and a proof needs {lab.steps_needed:,} steps: "
            f"few sessions may settle nothing (--session-length {enough} would)"
        )

    def _compare(self, lab: Lab) -> None:
        plan = self.plan
        arms = (GUARDED,) if plan.guard and not plan.compare else default_variants(plan.bounded_policy())
        offer = OfferedLoad(
            plan.offered or DEFAULT_OFFERED, plan.arrival_rate_per_s or DEFAULT_ARRIVALS_PER_S
        )
        if self.kept_load.recorded is not None:
            offer = recorded_load(lab, self.kept_load.recorded)
        compare_policies(lab, arms, offer, plan.gains or ADMISSION_GAINS, into=self.arms)

    def _judge_one(self, lab: Lab, sessions: int) -> None:
        point = PointRun(lab, self._single(lab, sessions)).run(into=self.points)
        lived_through = point.duration_s >= self.plan.length_s
        if point.verdict == "pass" and not lived_through and not self.stop():
            PointRun(lab, memory_plan(lab, sessions)).run(into=self.points)

    def _single(self, lab: Lab, sessions: int) -> PointPlan:
        """One N. A cache that grows is lived through from birth; a bounded one is met at every age."""
        plan = self.plan
        if plan.soak or plan.profile.policy_spec.grows:
            return PointPlan(sessions, "single", ages="start", length_s=plan.length_s, settle_early=False)
        return PointPlan(
            sessions, "single", max_steps=batches_to_confirm(lab.steps_needed, plan.confirm_steps)
        )

    # -- the report ---------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Everything known now, as a report."""
        plan, found = self.plan, self._findings()
        report = Report(
            command="capacity",
            status=found.status,
            verdict=found.verdict,
            exit_code=exit_code_for(found.status, found.verdict, signum=self.stop.signum),
            clock=plan.clock,
            started_at=self._started_at,
            duration_s=time.perf_counter() - self._began_s,
            argv=list(plan.argv),
            version=__version__,
            seed=plan.seed,
            profile=plan.profile.model_dump(mode="json"),
            environment={**environment(), "busy_cores": self._busy_cores()},
            weights=self.weights,
            settings=dict(plan.settings),
            objectives=found.objectives,
            capacity=found.capacity,
            policy_runs=self.arms,
            repeats=self.trials,
            load_generator=generator_of(self.points),
            audio=self.audio,
            backend=dict(self.engine),
            error=self.error,
        )
        report.summary = summarize(report, found.decisive)
        return report

    def _findings(self) -> Conclusion:
        return Conclusion(
            self.plan, self._status(), self.points, self.arms, self.trials, self.search, self.replay
        )

    def _busy_cores(self) -> float | None:
        """What others kept busy meanwhile; None where a server or an engine of its own is among the others."""
        return self._load.others() if self._in_this_process else None

    def _status(self) -> Status:
        if self.error is not None:
            return "failed"
        return "interrupted" if self.stop() else "complete"
